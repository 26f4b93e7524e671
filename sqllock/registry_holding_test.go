package sqllock_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// What a waiting caller held when its wait began may end before the wait. From the
// next heartbeat on the registry does not name it. Otherwise the next holder of
// that key would seem to wait.
func TestRegistryForgetsWhatEndsDuringTheWait(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s, other := registering(t, driver, dsn), open(t, driver, dsn)
		conn := connection(t, other)
		busy := mustLock(t, s, sqllock.ID(1))
		release := func(l *sqllock.Lock) { unlock(t, l) }
		kill := func(*sqllock.Lock) {
			execute(t, db, "SELECT pg_terminate_backend($1)", dbtest.BackendPID(t, conn))
		}
		for _, tt := range []struct {
			name string
			held sqllock.Locker
			wait sqllock.Locker
			end  func(*sqllock.Lock)
		}{
			{"a lock of the Session", s, s, release},
			{"a lock of the Session, in a wait elsewhere", s, sqllock.PerTx(other), release},
			{"a lock of a transaction", sqllock.PerTx(other), s, release},
			{"a lock of a connection that is gone", sqllock.OnConn(conn), s, kill},
		} {
			held, err := tt.held.TryLock(t.Context(), sqllock.ID(2))
			if err != nil {
				t.Fatal(err)
			}
			w := waitFor(t, held, tt.wait, sqllock.ID(1))
			lockertest.Eventually(t, tt.name+" is named", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits WHERE held_id = 2") == 1 })
			tt.end(held)
			lockertest.Eventually(t, tt.name+" is not named any more", func() bool {
				return number(t, db, "SELECT count(*) FROM latchkey_waits WHERE held_id = 2") == 0
			})
			if n := number(t, db, "SELECT waiters FROM latchkey_waits WHERE key_id = 1"); n != 1 {
				t.Errorf("%s: %d waiters, want 1", tt.name, n)
			}
			w.stop()
			<-w.err
		}
		unlock(t, busy)
	})
}

// A context may carry a lock twice. The caller still counts once.
func TestRegistryCountsACallerOnce(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := registry(t, driver, dsn)
		s := registering(t, driver, dsn)
		for name, l := range map[string]sqllock.Locker{"the Session": s, "a transaction": sqllock.PerTx(open(t, driver, dsn))} {
			lock := mustLock(t, s, sqllock.ID(2))
			ctx, cancel := context.WithCancel(lock.Context())
			bound, unbind := lock.Bind(ctx)
			done := make(chan error)
			go func() {
				_, err := l.Lock(bound, sqllock.ID(2))
				done <- err
			}()
			lockertest.Eventually(t, name+": the wait is noted", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 1 })
			if n := number(t, db, "SELECT waiters FROM latchkey_waits"); n != 1 {
				t.Errorf("%s: %d waiters, want 1", name, n)
			}
			cancel()
			<-done
			unbind()
			unlock(t, lock)
			lockertest.Eventually(t, name+": the wait is over", func() bool { return number(t, db, "SELECT count(*) FROM latchkey_waits") == 0 })
		}
	})
}
