package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// cycles returns the cycles of waits in db.
func cycles(t *testing.T, db *sql.DB) []lockwatch.Cycle {
	t.Helper()
	s, err := lockwatch.Inspect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return s.Cycles()
}

// A waitingCaller waits for a lock until it is stopped.
type waitingCaller struct {
	stop func()
	err  chan error
}

func waitFor(t *testing.T, holding *sqllock.Lock, l sqllock.Locker, key sqllock.Key) waitingCaller {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	bound, unbind := holding.Bind(ctx)
	w := waitingCaller{stop: cancel, err: make(chan error, 1)}
	go func() {
		defer unbind()
		lock, err := l.Lock(bound, key)
		if err == nil {
			_ = lock.Unlock()
		}
		w.err <- err
	}()
	t.Cleanup(cancel)
	return w
}

// A ring of waits through a lock of a transaction or of the caller's own connection
// is a certain cycle, although each of the callers polls. So is a caller that waits
// there for the key that it holds. When a wait ends, the cycle is over.
func TestRegistryShowsCyclesThroughOtherLockers(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		other := open(t, driver, dsn)
		reported := make(chan lockwatch.Finding, 100)
		watch(t, db, func(f lockwatch.Finding) {
			if f.Kind == lockwatch.WaitCycle {
				reported <- f
			}
		})
		for _, tt := range []struct {
			name string
			l    sqllock.Locker
		}{
			{"a transaction", sqllock.PerTx(other)},
			{"a transaction of a function", perTxFunc(other)},
			{"a connection", sqllock.OnConn(connection(t, other))},
		} {
			a, b := sqllock.Namespace("ring").Key(tt.name), sqllock.ID(-5)
			onSession := mustLock(t, s, a)
			onOther, err := tt.l.TryLock(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			one := waitFor(t, onSession, tt.l, b)
			two := waitFor(t, onOther, s, a)
			var found []lockwatch.Cycle
			lockertest.Eventually(t, tt.name+": the cycle is found", func() bool {
				found = cycles(t, db)
				return len(found) > 0
			})
			if len(found) != 1 || found[0].EndsByItself || len(found[0].Waits) != 2 {
				t.Errorf("%s: %v", tt.name, found)
			}
			if f := <-reported; f.Over || f.Cycle.String() != found[0].String() {
				t.Errorf("%s: Watch reports %+v", tt.name, f)
			}
			two.stop()
			if err := <-two.err; !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", tt.name, err)
			}
			lockertest.Eventually(t, tt.name+": the cycle is over", func() bool { return len(cycles(t, db)) == 0 })
			if f := <-reported; !f.Over || f.Cycle.String() != found[0].String() {
				t.Errorf("%s: Watch reports %+v", tt.name, f)
			}
			one.stop()
			<-one.err

			self := waitFor(t, onSession, tt.l, a)
			lockertest.Eventually(t, tt.name+": it waits for itself", func() bool {
				found = cycles(t, db)
				return len(found) == 1 && len(found[0].Waits) == 1 && strings.Contains(found[0].String(), "waits for key")
			})
			<-reported
			self.stop()
			<-self.err
			<-reported
			lockertest.Eventually(t, tt.name+": the registry is empty", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 })
			for _, l := range []*sqllock.Lock{onSession, onOther} {
				if err := l.Unlock(); err != nil {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
		}
	})
}

// A wait in another database is not noted, and a lock of another database is not
// named: their keys mean something else there.
func TestRegistryKnowsNoOtherDatabase(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		elsewhere := open(t, driver, pgtest.Database(t))
		for _, l := range []sqllock.Locker{sqllock.PerTx(elsewhere), perTxFunc(elsewhere), sqllock.OnConn(connection(t, elsewhere))} {
			a, b := sqllock.ID(1), sqllock.ID(2)
			onSession := mustLock(t, s, a)
			onOther, err := l.TryLock(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			witness, decoy := mustLock(t, s, sqllock.ID(3)), mustLock(t, s, b) // the same key here is another lock
			waits := []waitingCaller{waitFor(t, onSession, l, b), waitFor(t, onOther, s, a), waitFor(t, witness, s, a)}
			// The witness holds a lock of this Session. What the other caller of it holds
			// is not known here.
			lockertest.Eventually(t, "the two callers of the Session wait", func() bool {
				return number(t, db, "SELECT count(*) FROM latchkey_waits WHERE (held_space = -1 OR held_id = 3) AND since < now() - interval '100 ms'") == 2
			})
			if n := number(t, db, "SELECT count(*) FROM latchkey_waits WHERE held_space >= 0 AND held_id <> 3"); n != 0 {
				t.Errorf("%d rows of another database", n)
			}
			for _, w := range waits {
				w.stop()
				<-w.err
			}
			for _, lock := range []*sqllock.Lock{onSession, onOther, witness, decoy} {
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			}
			lockertest.Eventually(t, "the registry is empty", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 }) // else the next witness seems to wait at once
		}
	})
}

// LockTx under a Session's lock waits for that very lock. PostgreSQL does not see
// that, and the registry does. In a transaction of another database the key is
// another lock. After the wait the transaction can be used.
func TestRegistryShowsLockTx(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		a := sqllock.Pair(4, -2)
		lock := mustLock(t, s, a)
		other := pgtest.Database(t)
		elsewhere := open(t, driver, other)
		mustLock(t, session(t, driver, other), a)
		for _, tt := range []struct {
			db    *sql.DB
			waits int
		}{{elsewhere, 0}, {db, 1}} {
			tx := transaction(t, tt.db)
			bound, cancel := lock.Bind(t.Context())
			done := make(chan error)
			go func() { done <- sqllock.LockTx(bound, tx, a, time.Hour) }()
			lockertest.Eventually(t, "LockTx waits", func() bool {
				return number(t, tt.db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND waitstart < now() - interval '100 ms' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())") == 1
			})
			lockertest.Eventually(t, "the wait is noted, unless it is elsewhere", func() bool {
				return number(t, db, "SELECT count(*) FROM latchkey_waits") == tt.waits && len(cycles(t, db)) == tt.waits
			})
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("LockTx: %v", err)
			}
		}
		tx := transaction(t, db)
		bound, cancel := lock.Bind(t.Context())
		defer cancel()
		if err := sqllock.LockTx(bound, tx, a, 50*time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("LockTx: %v", err)
		}
		if _, err := tx.Exec("SELECT 1"); err != nil {
			t.Errorf("after it: %v", err)
		}
		lockertest.Eventually(t, "the registry is empty", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 })
	})
}
