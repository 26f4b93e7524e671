package databases

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An idle Session keeps no connection on any kind of database, and no row of a
// lease table. The next call takes its lock as the first one did.
func TestIdleCloseOnEveryDatabase(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		db, look := pool(t, o), open(t, o.Driver, o.DSN)
		db.SetConnMaxIdleTime(100 * time.Millisecond)
		s := session(t, db, append(o.Options(), sqllock.WithIdleClose(time.Second), sqllock.WithHeartbeat(100*time.Millisecond))...)
		other := process(t, o)
		for range 2 { // the second time as the first
			lock := awaitLock(t, s, sqllock.ID(1))
			if _, err := lock.Token(t.Context()); err != nil {
				t.Errorf("Token: %v", err)
			}
			if _, err := other.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of another Session: %v, want ErrHeld", err)
			}
			mustUnlock(t, lock)
			lockertest.Eventually(t, "the pool has no connection", func() bool {
				return s.Stats().IdleClosed && db.Stats().OpenConnections == 0
			})
			if got := s.Stats(); got.Connections != 0 || got.Losses != 0 || got.Held != 0 {
				t.Errorf("%d connections, %d losses, %d locks while idle", got.Connections, got.Losses, got.Held)
			}
			if k.locks == leaseRows {
				lockertest.Eventually(t, "only the other Session has a row", func() bool {
					return number(t, look, "SELECT count(*) FROM latchkey_sessions") == 1
				})
			}
		}
	}, advisoryKinds...)
}
