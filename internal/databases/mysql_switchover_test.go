package databases

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A switchover is a primary with a replica, and processes that work under locks
// while the two change places.
type switchover struct {
	primary, replica *mariadbtest.Server
	server           *address

	stop chan struct{}
	end  func() // closes stop, once

	mu   sync.Mutex         // protects held
	held map[int][]heldLock // for each key, the locks that were granted and have not been given back

	commits, moved atomic.Int64 // transactions, and those of them on the new primary
	unknown        atomic.Int64 // transactions whose end is not known
	fenced         atomic.Int64
	stale          atomic.Int64 // commits on the new primary under a lock of the old one
	overlaps       atomic.Int64 // of two locks
	late           atomic.Int64 // overlaps of two locks of which neither is of the old primary
}

// A heldLock is of the old primary, or perhaps of the new one.
type heldLock struct {
	lock *sqllock.Lock
	old  bool
}

const switchoverKeys = 3

func newSwitchover(t *testing.T) *switchover {
	t.Helper()
	w := &switchover{primary: replicating(t, 1), replica: replicating(t, 2), stop: make(chan struct{}), held: map[int][]heldLock{}}
	w.end = sync.OnceFunc(func() { close(w.stop) })
	withApp(t, w.primary)
	db := open(t, "mysql", w.primary.DSN("app"))
	create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
	execute(t, db, "CREATE TABLE counter (k INT PRIMARY KEY, n INT)")
	for k := range switchoverKeys {
		execute(t, db, fmt.Sprintf("INSERT INTO counter VALUES (%d, 0)", k))
	}
	follow(t, w.replica, w.primary, "")
	awaitApp(t, w.replica)
	awaitStatus(t, w.replica, "Slave_running", "ON")
	run(t, w.replica, "SET GLOBAL read_only=ON")
	w.server = &address{Connector: connector(t, lockertest.Orders{Driver: "mysql", DSN: w.primary.DSNOf("app", "app")})}
	return w
}

// work is what a process does until stop: it takes a key, reads a number and
// writes the next one in a fenced transaction.
func (w *switchover) work(s *sqllock.Session, db *sql.DB, k int) {
	for {
		select {
		case <-w.stop:
			return
		default: // goes on
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		lock, err := s.Lock(ctx, sqllock.ID(int64(k)))
		cancel()
		if err != nil {
			time.Sleep(5 * time.Millisecond) // as a service does between attempts
			continue
		}
		h := heldLock{lock, s.Stats().Losses == 0} // its first connection was to the old primary
		w.enter(k, h)
		w.write(db, h, k)
		w.leave(k, h)
		_ = lock.Unlock()
	}
}

// enter counts the locks of key k that are believed in at this moment.
func (w *switchover) enter(k int, h heldLock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, other := range w.held[k] {
		if other.lock.Err() == nil && h.lock.Err() == nil {
			w.overlaps.Add(1)
			if !other.old && !h.old {
				w.late.Add(1)
			}
		}
	}
	w.held[k] = append(w.held[k], h)
}

func (w *switchover) leave(k int, h heldLock) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[k] = slices.DeleteFunc(w.held[k], func(other heldLock) bool { return other == h })
}

// believed counts the locks that their holders believe in.
func (w *switchover) believed() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, locks := range w.held {
		for _, h := range locks {
			if h.lock.Err() == nil {
				n++
			}
		}
	}
	return n
}

// write adds one to the number of k, in two statements.
func (w *switchover) write(db *sql.DB, h heldLock, k int) {
	ctx := context.Background()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	if err := sqllock.Fence(ctx, tx, h.lock); err != nil {
		if errors.Is(err, sqllock.ErrFenced) {
			w.fenced.Add(1)
		}
		return
	}
	var n, server int
	err = tx.QueryRowContext(ctx, "SELECT n, @@server_id FROM counter WHERE k = "+itoa(k)).Scan(&n, &server)
	if err == nil {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("UPDATE counter SET n = %d WHERE k = %d", n+1, k))
	}
	if err != nil {
		return
	}
	if err := tx.Commit(); err != nil {
		w.unknown.Add(1)
		return
	}
	w.commits.Add(1)
	if server == 2 {
		w.moved.Add(1)
		if h.old {
			w.stale.Add(1)
		}
	}
}

// finish ends the work, and compares what was done with what the new primary
// has.
func (w *switchover) finish(t *testing.T, workers *sync.WaitGroup, exact, quiet bool) {
	t.Helper()
	w.end()
	workers.Wait()
	total := int64(number(t, open(t, "mysql", w.replica.DSN("app")), "SELECT CAST(sum(n) AS SIGNED) FROM counter"))
	commits, unknown := w.commits.Load(), w.unknown.Load()
	t.Logf("%d commits, %d on the new primary, %d of unknown end; its numbers add up to %d; %d overlaps; %d transactions fenced",
		commits, w.moved.Load(), unknown, total, w.overlaps.Load(), w.fenced.Load())
	if n := w.stale.Load(); n > 0 {
		t.Errorf("%d commits on the new primary under a lock of the old one", n)
	}
	if n := w.late.Load(); n > 0 {
		t.Errorf("%d overlaps of locks of the new primary", n)
	}
	if n := w.overlaps.Load(); quiet && n > 0 {
		t.Errorf("%d overlaps, although no Session was on the old primary at the promotion", n)
	}
	if total > commits+unknown || exact && total < commits {
		t.Errorf("the numbers add up to %d after %d commits and %d of unknown end", total, commits, unknown)
	}
}

// demote makes the old primary read-only. It waits until the replica has all of
// its changes.
func (w *switchover) demote(t *testing.T) {
	t.Helper()
	run(t, w.primary, "SET GLOBAL read_only=ON")
	var position string
	if err := open(t, "mysql", w.primary.DSN("")).QueryRow("SELECT @@gtid_binlog_pos").Scan(&position); err != nil {
		t.Fatal(err)
	}
	replica := open(t, "mysql", w.replica.DSN(""))
	lockertest.Eventually(t, "the replica has all changes", func() bool {
		return number(t, replica, "SELECT MASTER_GTID_WAIT('"+position+"', 1)") == 0
	})
}

// promote makes the replica the primary, and leads new connections to it.
func (w *switchover) promote(t *testing.T) {
	t.Helper()
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	run(t, w.replica, "STOP SLAVE; RESET SLAVE ALL")
	run(t, w.replica, "SET GLOBAL read_only=OFF")
	w.server.next = connector(t, lockertest.Orders{Driver: "mysql", DSN: w.replica.DSNOf("app", "app")})
}

// killClients kills the connections of the service on the old primary.
func (w *switchover) killClients(t *testing.T) { run(t, w.primary, "KILL HARD USER app") }

// Two servers change places under load, in three ways. The fence lets no lock of
// the old primary write on the new one, and no change is lost or made twice.
// Two locks of a key overlap only if one of them is from the old primary. They
// do not overlap at all if the Sessions there end before the promotion.
func TestLongMySQLSwitchover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		exact bool // no change is lost, since no two servers take writes
		steps func(t *testing.T, w *switchover)
		quiet bool // no overlap
	}{
		{"read-only, sessions end, promoted", true, func(t *testing.T, w *switchover) {
			w.demote(t)
			old := open(t, "mysql", w.primary.DSN("app"))
			lockertest.Eventually(t, "no Session is on the old primary", func() bool {
				return number(t, old, namedLocks) == 0 && w.believed() == 0
			})
			w.promote(t)
		}, true},
		{"read-only, killed, promoted", true, func(t *testing.T, w *switchover) {
			w.demote(t)
			w.killClients(t)
			w.promote(t)
		}, false},
		{"promoted, read-only, killed", false, func(t *testing.T, w *switchover) {
			w.promote(t)
			run(t, w.primary, "SET GLOBAL read_only=ON")
			w.killClients(t)
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newSwitchover(t)
			var sessions []*sqllock.Session
			var workers sync.WaitGroup
			for i := range 6 {
				db := sql.OpenDB(w.server)
				t.Cleanup(func() { _ = db.Close() })
				db.SetMaxIdleConns(-1) // a transaction begins where new connections go
				s := session(t, db, steady...)
				sessions = append(sessions, s)
				workers.Go(func() { w.work(s, db, i%switchoverKeys) })
			}
			defer workers.Wait()
			defer w.end()
			lockertest.Eventually(t, "the processes work", func() bool { return w.commits.Load() > 30 })
			tt.steps(t, w)
			lockertest.Eventually(t, "the processes work on the new primary", func() bool { return w.moved.Load() > 30 })
			lockertest.Eventually(t, "every Session is on the new primary", func() bool {
				for _, s := range sessions {
					if s.Stats().Losses == 0 {
						return false
					}
				}
				return true
			})
			w.finish(t, &workers, tt.exact, tt.quiet)
		})
	}
}
