package databases

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// userKey is the i-th key of a use.
func userKey(use string, i int) sqllock.Key {
	return sqllock.Namespace("conditions").Key(fmt.Sprint("user-1 ", use, i))
}

// at returns err with the step at which it happened.
func at(step string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", step, err)
}

// busy checks that err says that a key is held. Another error is returned.
func busy(t *testing.T, step string, err error) error {
	t.Helper()
	if err == nil {
		t.Errorf("%s: a held key is granted", step)
	}
	if errors.Is(err, sqllock.ErrHeld) {
		return nil
	}
	return at(step, err)
}

// useSession goes through what a Session promises, and ends with a loss.
func useSession(t *testing.T, s stage) error {
	a, b, err := s.pair(t)
	if err != nil {
		return err
	}
	if err := useBoth(t, "session", a, b); err != nil {
		return err
	}
	if err := useTwoSecrets(t, a, b); err != nil {
		return err
	}
	return useReaders(t, s, a, b)
}

// useBoth goes through what Sessions of every kind promise.
func useBoth(t *testing.T, name string, a, b *sqllock.Session) error {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	key := func(i int) sqllock.Key { return userKey(name, i) }
	lock, err := a.TryLock(ctx, key(1))
	if err != nil {
		return at("TryLock", err)
	}
	if _, err := b.TryLock(ctx, key(1)); err != nil {
		if err := busy(t, "TryLock of the other", err); err != nil {
			return err
		}
	} else {
		t.Error("two Sessions hold a key")
	}
	if token, err := lock.Token(ctx); err != nil || token == "" {
		return at("Token", err)
	}
	waited := make(chan error, 1)
	go func() {
		next, err := b.Lock(ctx, key(1))
		if err == nil {
			err = next.Unlock()
		}
		waited <- err
	}()
	lockertest.Eventually(t, "a caller waits", func() bool { return b.Stats().Waiting == 1 || len(waited) == 1 })
	if err := lock.Unlock(); err != nil {
		return at("Unlock", err)
	}
	if err := <-waited; err != nil {
		return at("Lock", err)
	}
	return useSets(ctx, t, key, a, b)
}

// useSets takes several keys at once, and keys under a secret.
func useSets(ctx context.Context, t *testing.T, key func(int) sqllock.Key, a, b *sqllock.Session) error {
	all, err := a.TryLockAll(ctx, key(2), key(3))
	if err != nil {
		return at("TryLockAll", err)
	}
	_, err = b.TryLockAll(ctx, key(3), key(4))
	if err := busy(t, "TryLockAll of the other", err); err != nil {
		return err
	}
	each, err := lockertest.TryEach(ctx, b, [][]sqllock.Key{{key(5), key(6)}, {key(2), key(7)}})
	if err != nil {
		return at("TryEach", err)
	}
	_, err = lockertest.TryEach(ctx, a, [][]sqllock.Key{{key(8)}, {key(2), key(7)}})
	if err := busy(t, "TryEach of the other", err); err != nil {
		return err
	}
	secret := key(0).Namespace().Keyed([]byte("one"))
	keyed, err := a.TryLock(ctx, secret.Key("user-1"))
	if err != nil {
		return at("TryLock under a secret", err)
	}
	_, err = b.TryLock(ctx, secret.Key("user-1"))
	if err := busy(t, "TryLock under the same secret", err); err != nil {
		return err
	}
	return errors.Join(all.Unlock(), each.Unlock(), keyed.Unlock())
}

// useTwoSecrets takes keys of one namespace under two secrets.
func useTwoSecrets(t *testing.T, a, b *sqllock.Session) error {
	namespace := sqllock.Namespace("secrets")
	lock, err := a.TryLock(t.Context(), namespace.Keyed([]byte("one")).Key("user-1"))
	if err != nil {
		return at("TryLock under a secret", err)
	}
	if _, err := b.TryLock(t.Context(), namespace.Keyed([]byte("two")).Key("user-1")); err == nil {
		t.Error("two secrets of one namespace are not noticed")
	}
	return lock.Unlock()
}

// useReaders takes readers' locks, and then loses a lock with its connection.
func useReaders(t *testing.T, s stage, a, b *sqllock.Session) error {
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	var readers sqllock.Locks
	for _, l := range []*sqllock.Session{a, b} {
		lock, err := l.RLock(ctx, userKey("readers", 1))
		if err != nil {
			return at("RLock", err)
		}
		readers = append(readers, lock)
	}
	_, err := b.TryLock(ctx, userKey("readers", 1))
	if err := busy(t, "TryLock beside readers", err); err != nil {
		return err
	}
	for _, lock := range readers {
		if err := lock.Unlock(); err != nil {
			return at("Unlock of a reader", err)
		}
	}
	lock, err := a.TryLock(ctx, userKey("lost", 1))
	if err != nil {
		return at("TryLock", err)
	}
	if n := s.endAll(t, "application_name LIKE '%latchkey'"); n < 2 {
		t.Errorf("%d connections of two Sessions", n)
	}
	select {
	case <-lock.Context().Done():
	case <-ctx.Done():
		t.Error("the holder is not told of the loss")
	}
	if err := lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock of a lost lock: %v", err)
	}
	lockertest.Eventually(t, "the Session serves again", func() bool {
		again, err := a.TryLock(ctx, userKey("lost", 1))
		return err == nil && again.Unlock() == nil
	})
	return nil
}

// useRegistry has a Session write down its lock, and lockwatch show it.
func useRegistry(t *testing.T, s stage) error {
	registry := new(httptesting.Logbook)
	locks, err := sqllock.Open(context.Background(), s.pool(t), sqllock.WithRegistry(""), sqllock.WithHeartbeat(20*time.Millisecond), sqllock.WithHolder("Zoë"),
		sqllock.WithLogger(registry.Logger()))
	if err != nil {
		return at("Open", err)
	}
	defer locks.Close()
	lock, err := locks.TryLock(t.Context(), userKey("registry", 1))
	if err != nil {
		return at("TryLock", err)
	}
	lock.SetName("Zoë's \\ export'")
	db := s.pool(t)
	until := time.Now().Add(soon)
	for shown := false; !shown; time.Sleep(5 * time.Millisecond) {
		snapshot, err := lockwatch.Inspect(t.Context(), db)
		if err != nil {
			return at("Inspect", err)
		}
		for _, h := range snapshot.Holders {
			shown = shown || h.Registration != nil && h.Registration.Name != ""
		}
		for line := range strings.Lines(registry.String()) {
			// A write that took too long is made again, with the next heartbeat.
			if strings.Contains(line, "cannot be written") && !strings.Contains(line, "(statement_timeout)") {
				return fmt.Errorf("the log: %s", line)
			}
		}
		if time.Now().After(until) {
			t.Fatal("the registry does not show the lock")
		}
	}
	return at("Unlock", lock.Unlock())
}

// useLeaseTable goes through what a Session with a lease table promises.
func useLeaseTable(t *testing.T, s stage) error {
	a, b, err := s.pair(t, sqllock.WithLeaseTable())
	if err != nil {
		return err
	}
	if err := useBoth(t, "lease table", a, b); err != nil {
		return err
	}
	lock, err := a.TryLock(t.Context(), userKey("lease fence", 1))
	if err != nil {
		return at("TryLock", err)
	}
	if _, err := lockwatch.Inspect(t.Context(), s.unprepared(t)); err != nil {
		return at("Inspect", err)
	}
	if err := fenced(t, s, lock); err != nil {
		return err
	}
	return errors.Join(lock.Unlock(), a.Close(), b.Close())
}

// useTryTx takes keys in transactions of the caller.
func useTryTx(t *testing.T, s stage) error {
	db := s.pool(t)
	one, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return own("BeginTx", err)
	}
	defer one.Rollback()
	two, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return own("BeginTx", err)
	}
	defer two.Rollback()
	if err := sqllock.TryTx(t.Context(), one, userKey("tx", 1)); err != nil {
		return at("TryTx", err)
	}
	err = sqllock.TryTx(t.Context(), two, userKey("tx", 1))
	if err := busy(t, "TryTx of the other", err); err != nil {
		return err
	}
	err = sqllock.LockTx(t.Context(), two, userKey("tx", 1), 5*time.Millisecond)
	if err := busy(t, "LockTx of the other", err); err != nil {
		return err
	}
	if err := sqllock.RLockTx(t.Context(), one, userKey("tx", 2), time.Second); err != nil {
		return at("RLockTx", err)
	}
	if err := one.Commit(); err != nil {
		return own("Commit", err)
	}
	if err := sqllock.LockTx(t.Context(), two, userKey("tx", 1), soon); err != nil {
		return at("LockTx", err)
	}
	return own("Commit", two.Commit())
}

// usePerTx takes a key on a transaction for each lock.
func usePerTx(t *testing.T, s stage) error {
	db := s.pool(t)
	locks := sqllock.PerTx(db)
	lock, err := locks.TryLock(t.Context(), userKey("pertx", 1))
	if err != nil {
		return at("TryLock", err)
	}
	defer lock.Unlock()
	other, err := sqllock.PerTx(db, sqllock.WithLease(time.Minute)).TryLock(t.Context(), userKey("pertx", 1))
	if err != nil && !errors.Is(err, sqllock.ErrHeld) {
		return at("TryLock of the other", err)
	}
	lost := lock.Unlock()
	if err == nil {
		if lost == nil {
			t.Error("two transactions hold a key")
		}
		_ = other.Unlock()
	}
	return at("Unlock", lost)
}

// useOnConn takes a key on connections of the caller.
func useOnConn(t *testing.T, s stage) error {
	db := s.pool(t)
	var lockers []*sqllock.ConnLocker
	for range 2 {
		conn, err := db.Conn(t.Context())
		if err != nil {
			return own("Conn", err)
		}
		defer conn.Close()
		lockers = append(lockers, sqllock.OnConn(conn))
	}
	lock, err := lockers[0].TryLock(t.Context(), userKey("conn", 1))
	if err != nil {
		return at("TryLock", err)
	}
	_, err = lockers[1].TryLock(t.Context(), userKey("conn", 1))
	if err := busy(t, "TryLock of the other", err); err != nil {
		return errors.Join(err, lock.Unlock())
	}
	return at("Unlock", lock.Unlock())
}

// useFence fences a transaction for a lock of a Session.
func useFence(t *testing.T, s stage) error {
	locks, err := sqllock.Open(context.Background(), s.pool(t))
	if err != nil {
		return at("Open", err)
	}
	defer locks.Close()
	lock, err := locks.TryLock(t.Context(), userKey("fence", 1))
	if err != nil {
		return at("TryLock", err)
	}
	defer lock.Unlock()
	return fenced(t, s, lock)
}

// fenced commits work under a fence, and sees that the work of a stale lock is
// rejected.
func fenced(t *testing.T, s stage, lock *sqllock.Lock) error {
	work := func() error {
		return transact(t, s.pool(t), func(tx *sql.Tx) error {
			if err := sqllock.Fence(t.Context(), tx, lock); err != nil {
				return at("Fence", err)
			}
			_, err := tx.ExecContext(t.Context(), "INSERT INTO effects VALUES ('fenced')")
			return own("INSERT", err)
		})
	}
	if err := work(); err != nil {
		return err
	}
	execute(t, s.admin, "UPDATE latchkey_fence SET lsn = lsn + 1000000000")
	defer execute(t, s.admin, "DELETE FROM latchkey_fence")
	if err := work(); err != nil && !errors.Is(err, sqllock.ErrFenced) {
		return err
	} else if err == nil {
		t.Error("a stale lock passes the fence")
	}
	return nil
}

// transact carries out work in a transaction of the caller.
func transact(t *testing.T, db *sql.DB, work func(tx *sql.Tx) error) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return own("BeginTx", err)
	}
	defer tx.Rollback()
	if err := work(tx); err != nil {
		return err
	}
	return own("Commit", tx.Commit())
}

// useWatermark raises a watermark.
func useWatermark(t *testing.T, s stage) error {
	db := s.pool(t)
	advance := func(to int64) error {
		return transact(t, db, func(tx *sql.Tx) error {
			return at("Advance", watermark.Advance(t.Context(), tx, userKey("mark", 1), to))
		})
	}
	before, _, err := watermark.Get(t.Context(), db, userKey("mark", 1))
	if err != nil {
		return at("Get", err)
	}
	if err := advance(before + 2); err != nil {
		return err
	}
	if err := advance(before + 1); !errors.Is(err, watermark.ErrPassed) {
		if err == nil {
			t.Error("a watermark goes back")
		}
		return err
	}
	mark, ok, err := watermark.Get(t.Context(), db, userKey("mark", 1))
	if err == nil && (!ok || mark != before+2) {
		t.Errorf("watermark %d, %t", mark, ok)
	}
	return at("Get", err)
}

// idempotencyStatus returns a function that posts a request with a key of its
// own twice. Its effect and its response are stored once. The function returns
// the status, what is logged, and how the handler's own statement failed.
func idempotencyStatus(t *testing.T, s stage) func() (int, string, error) {
	log := new(httptesting.Logbook)
	var failed error // the handler's statement
	once := idempotency.New(s.pool(t), ratelimit.OneAtATime(sqllock.NewMemory(), "pay"), func(*http.Request) (string, error) { return "ada", nil },
		idempotency.WithLogger(log.Logger()))
	body := []byte("paid \x00\xff\\'é")
	runs := 0
	pay := once.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs++
		tx, _ := idempotency.Tx(r.Context())
		if _, err := tx.ExecContext(r.Context(), "INSERT INTO effects VALUES ('paid')"); err != nil {
			failed = own("INSERT", err)
			http.Error(w, "INSERT", http.StatusInternalServerError)
			return
		}
		_, _ = w.Write(body)
	}))
	return func() (int, string, error) {
		before, key := runs, rand.Text()
		for range 2 {
			response := post(t.Context(), pay, key, "10 to bob")
			if response.Code != http.StatusOK {
				return response.Code, log.String(), failed
			}
			if !bytes.Equal(response.Body.Bytes(), body) {
				t.Errorf("body %q, want %q", response.Body.Bytes(), body)
			}
		}
		if runs != before+1 {
			t.Errorf("%d runs of two equal requests", runs-before)
		}
		return http.StatusOK, "", nil
	}
}

// useIdempotency posts a request twice.
func useIdempotency(t *testing.T, s stage) error {
	switch status, log, failed := idempotencyStatus(t, s)(); {
	case failed != nil:
		return failed
	case status != http.StatusOK:
		return fmt.Errorf("status %d, log %s", status, log)
	}
	return nil
}

// useElection has two processes campaign: one leads at a time.
func useElection(t *testing.T, s stage) error {
	a, b, err := s.pair(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var (
		wg             sync.WaitGroup
		leaders, terms atomic.Int32
	)
	for _, l := range []*sqllock.Session{a, b} {
		c := election.New(l, userKey("election", 1), election.WithBackoff(time.Millisecond, 10*time.Millisecond))
		wg.Go(func() {
			_ = c.Run(ctx, func(context.Context) error {
				if leaders.Add(1) > 1 {
					t.Error("two lead")
				}
				if terms.Add(1) == 4 {
					cancel()
				}
				leaders.Add(-1)
				return nil
			})
		})
	}
	wg.Wait()
	return errors.Join(a.Close(), b.Close())
}
