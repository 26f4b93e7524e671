package sqllock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// take acquires n free keys that begin at first, at once.
func take(tb testing.TB, s *sqllock.Session, first, n int) []*sqllock.Lock {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	locks := make([]*sqllock.Lock, n)
	var wg sync.WaitGroup
	for i := range locks {
		wg.Go(func() {
			lock, err := s.Lock(ctx, sqllock.ID(int64(first+i)))
			if err != nil {
				tb.Errorf("Lock: %v", err)
			}
			locks[i] = lock
		})
	}
	wg.Wait()
	if tb.Failed() {
		tb.FailNow()
	}
	return locks
}

// One connection holds a thousand locks. More locks open another one, as far as
// WithMaxHeld allows.
func TestManyLocks(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		// A long lease: no heartbeat is counted as a query below.
		s := session(t, driver, dsn, sqllock.WithLease(time.Hour), sqllock.WithMaxHeld(1100), sqllock.WithMaxConns(2))
		observer := open(t, driver, dsn)
		locks := take(t, s, 0, 1000)
		if n := sessions(t, observer); n != 1 {
			t.Errorf("%d connections hold 1000 locks, want 1", n)
		}
		before := s.Stats().Exchanges
		for i := range locks {
			if _, err := s.TryLock(t.Context(), sqllock.ID(int64(i))); !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("the second caller: %v", err)
			}
		}
		if after := s.Stats().Exchanges; after != before {
			t.Errorf("1000 rejections in the process cost %d queries, want none", after-before)
		}
		locks = append(locks, take(t, s, 1000, 100)...)
		lockertest.Eventually(t, "another connection is open", func() bool { return sessions(t, observer) == 2 })
		if n := advisoryLocks(t, observer); n != 1100 {
			t.Errorf("the database sees %d locks, want 1100", n)
		}
		if _, err := s.TryLock(t.Context(), sqllock.ID(-1)); !errors.Is(err, sqllock.ErrCapacity) {
			t.Errorf("TryLock beyond WithMaxHeld: %v, want ErrCapacity", err)
		}
		unlock(t, locks[0])
		locks[0] = mustLock(t, s, sqllock.ID(-1))
		for _, lock := range locks {
			go func() { _ = lock.Unlock() }()
		}
		lockertest.Eventually(t, "all locks are released", func() bool { return advisoryLocks(t, observer) == 0 })
	})
}

// Callers of one process that follow each other are never rejected, although
// Unlock does not wait for the database.
func TestAsyncUnlock(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		s := session(t, driver, dsn, sqllock.WithAsyncUnlock())
		for range 200 {
			unlock(t, mustLock(t, s, sqllock.ID(1)))
		}
		observer := open(t, driver, dsn)
		lockertest.Eventually(t, "the lock is released", func() bool { return advisoryLocks(t, observer) == 0 })
	})
}

func TestTryAnyIsOneRoundTrip(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		s := session(t, driver, dsn, sqllock.WithLease(time.Hour))
		rival := session(t, driver, dsn)
		keys := make([]sqllock.Key, 50)
		for i := range keys {
			keys[i] = sqllock.Namespace("slots").SlotKey("user", i)
		}
		for range 40 {
			if _, err := rival.TryAny(t.Context(), keys...); err != nil {
				t.Fatal(err)
			}
		}
		before := s.Stats().Exchanges
		lock, err := s.TryAny(t.Context(), keys...)
		if err != nil {
			t.Fatal(err)
		}
		if n := s.Stats().Exchanges - before; n != 1 {
			t.Errorf("one of 50 keys, 40 of them held, cost %d round trips, want 1", n)
		}
		if lock.Key() != keys[40] {
			t.Error("TryAny did not take the first free key")
		}
	})
}

func TestClose(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		// The lease is so long that only Close can end the connection.
		s := session(t, driver, dsn, sqllock.WithLease(10*time.Minute))
		observer := open(t, driver, dsn)
		lock := take(t, s, 0, 1)[0]
		work := lock.Context()
		waiter := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() {
			_, err := s.Lock(ctx, sqllock.ID(0))
			waiter <- err
		}()
		lockertest.Eventually(t, "a caller waits", func() bool { return s.Stats().Waiting == 1 })
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-waiter; !errors.Is(err, sqllock.ErrClosed) {
			t.Errorf("the caller that waited got %v, want ErrClosed", err)
		}
		<-work.Done()
		if cause := context.Cause(work); cause != sqllock.ErrClosed {
			t.Errorf("cause of the work's context: %v, want ErrClosed", cause)
		}
		if err := lock.Err(); err != sqllock.ErrLost {
			t.Errorf("Err: %v, want ErrLost", err)
		}
		if err := lock.Unlock(); err != sqllock.ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		for name, call := range map[string]func(context.Context, sqllock.Key) (*sqllock.Lock, error){"TryLock": s.TryLock, "Lock": s.Lock} {
			if _, err := call(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrClosed) {
				t.Errorf("%s after Close: %v, want ErrClosed", name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Errorf("Close again: %v", err)
		}
		lockertest.Eventually(t, "the connection and its locks are gone", func() bool {
			return sessions(t, observer) == 0 && advisoryLocks(t, observer) == 0
		})
	})
}

func TestSettingsOfTheConnection(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		db.SetMaxIdleConns(2)
		s := sessionOn(t, db)
		if !s.Stats().Watched {
			t.Error("the socket is not watched")
		}
		// The pool's other connections keep the server's settings.
		for range 5 {
			var got string
			if err := db.QueryRow("SHOW idle_session_timeout").Scan(&got); err != nil {
				t.Fatal(err)
			}
			if got != "0" {
				t.Errorf("idle_session_timeout %q leaked into the pool", got)
			}
		}
		if n := sessions(t, db); n != 1 {
			t.Errorf("%d connections are named latchkey, want 1", n)
		}
	})
}

// Dialect returns the dialect that Open has found or was given.
func TestSessionDialect(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		exec := dsn
		if driver == "pgx" {
			exec += "&default_query_exec_mode=exec"
		}
		away := func(opts ...sqllock.Option) *sqllock.Session {
			return session(t, driver, "postgres://127.0.0.1:1/nothing-there", append(opts, sqllock.WithLazyOpen())...)
		}
		for name, tt := range map[string]struct {
			s    *sqllock.Session
			want sqllock.Dialect
		}{
			"found":                 {session(t, driver, dsn), sqllock.PostgreSQL},
			"lease table":           {session(t, driver, exec, sqllock.WithLeaseTable()), sqllock.PostgreSQL},
			"given":                 {session(t, driver, dsn, sqllock.WithDialect(sqllock.PostgreSQL)), sqllock.PostgreSQL},
			"not connected":         {away(), ""},
			"not connected, given":  {away(sqllock.WithDialect(sqllock.MySQL)), sqllock.MySQL},
			"not connected, SQLite": {away(sqllock.WithDialect(sqllock.SQLite)), sqllock.SQLite},
		} {
			if got := tt.s.Dialect(); got != tt.want {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		}
	})
}
