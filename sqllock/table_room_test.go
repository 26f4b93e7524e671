package sqllock_test

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
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

// smallLockTable are settings of a server whose lock table has few entries.
func smallLockTable(connections int) pgtest.Option {
	return pgtest.WithSettings(map[string]string{"max_connections": strconv.Itoa(connections), "max_locks_per_transaction": "10"})
}

// A flood of ids through some instances leaves room in the lock table of a small
// server, so that other clients can work.
func TestFloodLeavesRoom(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		const instances = 3
		observer := open(t, driver, cluster.DSN(""))
		var log lockedBuffer
		s := session(t, driver, cluster.DSN(""), sqllock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))),
			sqllock.WithHeartbeat(time.Second)) // a heartbeat sees that there is room again
		first := mustLock(t, s, sqllock.ID(-3)) // the others may take all the room
		var (
			tasks   sync.WaitGroup
			locks   = make([][]*sqllock.Lock, instances)
			granted int
		)
		for i := range instances {
			one := s
			if i > 0 {
				one = session(t, driver, cluster.DSN(""))
			}
			tasks.Go(func() { locks[i] = flood(t, one, int64(i)*1_000_000, 2000) })
		}
		tasks.Wait()
		for _, l := range locks {
			granted += len(l)
		}
		used := number(t, observer, "SELECT count(*) FROM pg_locks WHERE NOT fastpath")
		all := number(t, observer, "SELECT current_setting('max_locks_per_transaction')::int * (current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)")
		if used > all*6/10+1 || granted < all*4/10 { // one for the observer
			t.Errorf("%d of %d entries of the lock table are in use, want at most 60 %%; %d keys were granted", used, all, granted)
		}
		execute(t, observer, "CREATE TABLE orders (id int PRIMARY KEY, note text); CREATE INDEX ON orders (note)") // other clients can work
		if _, err := s.TryLock(t.Context(), sqllock.ID(-1)); !errors.Is(err, sqllock.ErrCapacity) {
			t.Errorf("TryLock of a new key: %v, want ErrCapacity", err)
		}
		if n := log.count("new keys are denied"); n != 1 {
			t.Errorf("the log gives the reason %d times, want once", n)
		}

		// Callers of this process hand a lock on, although the table is full.
		waiting := make(chan error, 1)
		go func() {
			_, err := s.Lock(context.Background(), first.Key())
			waiting <- err
		}()
		lockertest.Eventually(t, "a caller waits", func() bool { return s.Stats().Waiting == 1 })
		unlock(t, first)
		if err := <-waiting; err != nil {
			t.Errorf("Lock of a key that this process holds: %v", err)
		}
		for _, l := range locks {
			for _, lock := range l {
				unlock(t, lock)
			}
		}
		lockertest.Eventually(t, "there is room again, and the log says so", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(-2))
			return err == nil && lock.Unlock() == nil && log.count("has room again") == 1
		})
	}, smallLockTable(30))
}

// Other clients fill the lock table. Locks stay held, although the server rejects
// the query that counts the table's entries, and new ones are denied.
func TestOthersFillTheLockTable(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := open(t, driver, cluster.DSN(""))
		s := session(t, driver, cluster.DSN(""), sqllock.WithHeartbeat(20*time.Millisecond))
		lock, hog := mustLock(t, s, sqllock.ID(1)), connection(t, db)
		var err error
		for n := 100; err == nil; n++ {
			_, err = hog.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", n)
		}
		before := s.Stats()
		lockertest.Eventually(t, "heartbeats", func() bool { return s.Stats().Exchanges >= before.Exchanges+8 || lock.Err() != nil })
		if _, err := s.TryLock(t.Context(), sqllock.ID(2)); !errors.Is(err, sqllock.ErrCapacity) {
			t.Errorf("TryLock with the server's lock table full: %v, want ErrCapacity", err)
		}
		if err := lock.Err(); err != nil || s.Stats().Losses != 0 {
			t.Errorf("a lock held while the table is full: %v; %d connections were lost", err, s.Stats().Losses)
		}
		execute(t, hog, "SELECT pg_advisory_unlock_all()")
		lockertest.Eventually(t, "the Session sees that there is room", func() bool {
			lock, err := s.TryLock(t.Context(), sqllock.ID(2))
			return err == nil && lock.Unlock() == nil
		})
		unlock(t, lock)
	}, smallLockTable(20))
}
