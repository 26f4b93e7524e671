package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// flood requests keys with ids from first on, from many callers at once, until
// s grants no more. It returns the locks, and fails the test on an error other
// than ErrCapacity.
func flood(t *testing.T, s *sqllock.Session, first, ids int64) (locks []*sqllock.Lock) {
	t.Helper()
	const callers = 32
	var (
		next  atomic.Int64
		mu    sync.Mutex // protects locks
		tasks sync.WaitGroup
	)
	for range callers {
		tasks.Go(func() {
			for {
				n := next.Add(1)
				if n > ids {
					return
				}
				lock, err := s.TryLock(context.Background(), sqllock.ID(first+n))
				switch {
				case errors.Is(err, sqllock.ErrCapacity):
				case err != nil:
					t.Errorf("TryLock: %v", err)
					return
				default:
					mu.Lock()
					locks = append(locks, lock)
					mu.Unlock()
				}
			}
		})
	}
	tasks.Wait()
	return locks
}

// othersWork connects a client that does not use sqllock, and runs a query that
// needs entries of the lock table.
func othersWork(t *testing.T, driver, dsn string) {
	t.Helper()
	db := open(t, driver, dsn)
	defer db.Close()
	execute(t, db, "DROP TABLE IF EXISTS orders; CREATE TABLE orders (id int PRIMARY KEY, note text); CREATE INDEX ON orders (note); "+
		"INSERT INTO orders VALUES (1, 'x'); ANALYZE orders")
	if number(t, db, "SELECT count(*) FROM orders JOIN pg_class ON true") == 0 {
		t.Error("no rows")
	}
}

// usedPlaces returns how many entries of the server's lock table are in use,
// and how many there are.
func usedPlaces(t *testing.T, db *sql.DB) (used, all int) {
	t.Helper()
	return number(t, db, "SELECT count(*) FROM pg_locks WHERE NOT fastpath"),
		number(t, db, `SELECT current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)`)
}

// A flood of ids through one Session leaves room in the lock table of a small
// server, so that other clients can work.
func TestFloodLeavesRoom(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		observer := open(t, driver, cluster.DSN(""))
		var log lockedBuffer
		s := session(t, driver, cluster.DSN(""), sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			sqllock.WithHeartbeat(time.Second)) // a heartbeat sees that there is room again
		locks := flood(t, s, 0, 4000)
		used, all := usedPlaces(t, observer)
		t.Logf("%d of %d entries are in use", used, all)
		if used > all*6/10+1 { // one for the observer
			t.Errorf("%d of %d entries of the lock table are in use, want at most 60 %%", used, all)
		}
		if len(locks) < all*4/10 {
			t.Errorf("%d keys were granted, in a lock table of %d entries", len(locks), all)
		}
		othersWork(t, driver, cluster.DSN(""))
		if _, err := s.TryLock(t.Context(), sqllock.ID(1_000_000)); !errors.Is(err, sqllock.ErrCapacity) {
			t.Errorf("TryLock of a new key: %v, want ErrCapacity", err)
		}
		if n := log.count("new keys are denied"); n != 1 {
			t.Errorf("the log gives the reason %d times, want once", n)
		}

		// Callers of this process hand a lock on, although the table is full.
		waiting := make(chan error, 1)
		go func() {
			_, err := s.Lock(context.Background(), locks[0].Key())
			waiting <- err
		}()
		lockertest.Eventually(t, "a caller waits", func() bool { return s.Stats().Waiting == 1 })
		unlock(t, locks[0])
		if err := <-waiting; err != nil {
			t.Errorf("Lock of a key that this process holds: %v", err)
		}
		for _, lock := range locks[1:] {
			unlock(t, lock)
		}
		lockertest.Eventually(t, "there is room again", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(1_000_001))
			return err == nil && lock.Unlock() == nil
		})
		lockertest.Eventually(t, "the log says that there is room again", func() bool { return log.count("has room again") == 1 })
	}, pgtest.WithSettings(map[string]string{"max_connections": "20", "max_locks_per_transaction": "10"}))
}

// Ten instances that are flooded at once leave room too.
func TestLongFleetLeavesRoom(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		const instances = 10
		observer := open(t, driver, cluster.DSN(""))
		var fleet []*sqllock.Session
		for range instances {
			fleet = append(fleet, session(t, driver, cluster.DSN("")))
		}
		var (
			tasks   sync.WaitGroup
			granted atomic.Int64
		)
		for i, s := range fleet {
			tasks.Go(func() { granted.Add(int64(len(flood(t, s, int64(i)*1_000_000, 600)))) })
		}
		tasks.Wait()
		used, all := usedPlaces(t, observer)
		t.Logf("%d of %d entries are in use", used, all)
		if used > all*7/10 {
			t.Errorf("%d of %d entries of the lock table are in use", used, all)
		}
		if granted.Load() < int64(all)*4/10 {
			t.Errorf("%d keys were granted, in a lock table of %d entries", granted.Load(), all)
		}
		othersWork(t, driver, cluster.DSN(""))
	}, pgtest.WithSettings(map[string]string{"max_connections": "60", "max_locks_per_transaction": "10"}))
}
