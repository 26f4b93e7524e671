package sqllock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
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

// Dialect returns the dialect that Open was given, or what it has found.
func TestSessionDialect(t *testing.T) {
	t.Parallel()
	const away = "postgres://127.0.0.1:1/nothing-there"
	for _, want := range []sqllock.Dialect{"", sqllock.MySQL, sqllock.SQLite, sqllock.PostgreSQL} {
		if got := session(t, "pgx", away, sqllock.WithLazyOpen(), sqllock.WithDialect(want)).Dialect(); got != want {
			t.Errorf("not connected: %q, want %q", got, want)
		}
	}
	table := session(t, "pgx", pgtest.Database(t)+"&default_query_exec_mode=exec", sqllock.WithLeaseTable())
	if got := table.Dialect(); got != sqllock.PostgreSQL {
		t.Errorf("lease table: %q", got)
	}
}
