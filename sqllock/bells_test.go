package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// seldom is a lease so long that no heartbeat comes in a test.
var seldom = sqllock.WithLease(10 * time.Minute)

// marks counts the locks by which Sessions listen to bells.
func marks(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND classid = 374723015
		AND mode = 'ShareLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// awaitMarks waits until there are n marks.
func awaitMarks(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	lockertest.Eventually(t, fmt.Sprintf("%d marks", n), func() bool { return marks(t, db) == n })
}

// wait begins to wait for key. The channel gets the lock, or is closed.
func wait(ctx context.Context, l sqllock.Locker, key sqllock.Key) <-chan *sqllock.Lock {
	granted := make(chan *sqllock.Lock, 1)
	go func() {
		defer close(granted)
		if lock, err := l.Lock(ctx, key); err == nil {
			granted <- lock
		}
	}()
	return granted
}

// mustBeGranted waits for the lock of a call of wait.
func mustBeGranted(t *testing.T, granted <-chan *sqllock.Lock) *sqllock.Lock {
	t.Helper()
	select {
	case lock := <-granted:
		if lock == nil {
			t.Fatal("Lock has failed")
		}
		return lock
	case <-time.After(30 * time.Second):
		t.Fatal("the waiter has not got the key")
		return nil
	}
}

// A release wakes a waiter in another Session that does not poll, for keys of
// each kind.
func TestBellWakes(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		holder := session(t, driver, dsn, seldom)
		db := open(t, driver, dsn)
		for _, key := range []sqllock.Key{sqllock.ID(-1), sqllock.Pair(3, 4)} {
			awaitMarks(t, db, 0)
			waiter := session(t, driver, dsn, seldom)
			lock := mustLock(t, holder, key)
			granted := wait(t.Context(), waiter, key)
			awaitMarks(t, db, 2)
			// The waiter tries once more after it has the mark, and pauses then.
			exchanges := uint64(0)
			lockertest.Eventually(t, "silence", func() bool {
				sqllock.StopPolls(waiter)
				before := exchanges
				exchanges = waiter.Stats().Exchanges
				return before == exchanges
			})
			sqllock.StopPolls(waiter)
			unlock(t, lock)
			unlock(t, mustBeGranted(t, granted))
			if err := waiter.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
