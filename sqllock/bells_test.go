package sqllock_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
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

func mustRelease(t *testing.T, l *sqllock.Lock) {
	t.Helper()
	if err := l.Unlock(); err != nil {
		t.Fatalf("Unlock: %v", err)
	}
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
	case <-time.After(20 * time.Second):
		t.Fatal("the waiter has not got the key")
		return nil
	}
}

// A release wakes a waiter in another Session that does not poll, for keys of
// each kind.
func TestBellWakes(t *testing.T) {
	eachDriver(t, testBellWakes)
}

// PgBouncer in session mode passes bells on.
func TestBellWakesThroughPooler(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		pooler, err := cluster.PgBouncer("session", 10)
		if err != nil {
			t.Fatal(err)
		}
		defer pooler.Close()
		testBellWakes(t, driver, pooler.DSN(""))
	})
}

func testBellWakes(t *testing.T, driver, dsn string) {
	holder := session(t, driver, dsn, seldom)
	db := open(t, driver, dsn)
	for round, key := range []sqllock.Key{sqllock.ID(1), sqllock.ID(-1), sqllock.Pair(3, 4)} {
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
		mustRelease(t, lock)
		mustRelease(t, mustBeGranted(t, granted))
		if n := number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"); n != 0 {
			t.Errorf("round %d: %d locks are left", round, n)
		}
		if err := waiter.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A holder that rings no bell is noticed by polling: an older process, one whose
// connection ended, or one in a transaction.
func TestReleaseWithoutBell(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		waiter := session(t, driver, dsn, seldom)
		db := open(t, driver, dsn)
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_lock(1)"); err != nil {
			t.Fatal(err)
		}
		granted := wait(t.Context(), waiter, sqllock.ID(1))
		awaitMarks(t, db, 2)
		if _, err := conn.ExecContext(t.Context(), "SELECT pg_advisory_unlock(1)"); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, mustBeGranted(t, granted))
	})
}

// The marks go when no caller waits any more, and with the connection. A new
// connection listens again.
func TestMarksEnd(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		holder, waiter := session(t, driver, dsn), session(t, driver, dsn)
		db := open(t, driver, dsn)
		lock := mustLock(t, holder, sqllock.ID(1))
		ctx, cancel := context.WithCancel(t.Context())
		granted := wait(ctx, waiter, sqllock.ID(1))
		awaitMarks(t, db, 2)
		if n := waiter.Connections()[0].SecretChecks; n != 2 {
			t.Errorf("the Session says that %d locks are its marks, want 2", n)
		}
		first := waiter.Connections()[0].PID
		execute(t, db, fmt.Sprintf("SELECT pg_terminate_backend(%d)", first))
		lockertest.Eventually(t, "a new connection that listens", func() bool {
			c := waiter.Connections()
			return len(c) == 1 && c[0].PID != first && marks(t, db) == 2
		})
		cancel()
		if lock := <-granted; lock != nil {
			t.Error("Lock has succeeded")
		}
		awaitMarks(t, db, 0)
		lockertest.Eventually(t, "no marks in Connections", func() bool { return waiter.Connections()[0].SecretChecks == 0 })
		mustRelease(t, lock)
	})
}

// A client that rings without end does not make a Session send without end.
func TestBellFlood(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		holder, waiter := session(t, driver, dsn), session(t, driver, dsn)
		db := open(t, driver, dsn)
		lock := mustLock(t, holder, sqllock.ID(1))
		granted := wait(t.Context(), waiter, sqllock.ID(1))
		awaitMarks(t, db, 2)
		const bells = 2000
		before, began := waiter.Stats().Exchanges, time.Now()
		for range bells {
			execute(t, db, fmt.Sprintf("SELECT pg_notify('latchkey_%d', '')", dialect.BellOf(dialect.Key{ID: 1})))
		}
		sent, most := waiter.Stats().Exchanges-before, uint64(60+2*time.Since(began)/sqllock.RingMax)
		if sent > most {
			t.Errorf("%d statements for %d bells, want at most %d", sent, bells, most)
		}
		if lock.Err() != nil || waiter.Stats().Losses != 0 {
			t.Errorf("the flood has cost a connection: %v", lock.Err())
		}
		mustRelease(t, lock)
		mustRelease(t, mustBeGranted(t, granted))
	})
}

// Where the Session does not see its socket, or waits are short, it takes no
// marks, and a release sends no notification.
func TestNoBell(t *testing.T) {
	dsn := pgtest.Database(t)
	holder, waiter := session(t, "pgx", dsn), session(t, "pgx", dsn, sqllock.WithSocket(func(any) net.Conn { return nil }))
	db := open(t, "pgx", dsn)
	lock := mustLock(t, holder, sqllock.ID(1))
	granted := wait(t.Context(), waiter, sqllock.ID(1))
	exchanges := waiter.Stats().Exchanges
	lockertest.Eventually(t, "polls", func() bool { return waiter.Stats().Exchanges > exchanges+10 })
	if n := marks(t, db); n != 0 {
		t.Errorf("%d marks of a Session that cannot hear", n)
	}
	mustRelease(t, lock)
	mustRelease(t, mustBeGranted(t, granted))
}
