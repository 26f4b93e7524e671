package databases

import (
	"database/sql"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// slowToEnd opens a pool on which the statement that deletes a session's rows
// is slow, as over a long distance.
func slowToEnd(t *testing.T, o lockertest.Orders) (db *sql.DB, ended *atomic.Bool) {
	ended = new(atomic.Bool)
	return intercepted(t, o, func(query string, carryOut func() error) error {
		if strings.Contains(query, "DELETE FROM") && strings.Contains(query, "latchkey_sessions WHERE id = ") {
			time.Sleep(300 * time.Millisecond) // the fault
			defer ended.Store(true)
		}
		return carryOut()
	}), ended
}

// After Close the keys are free to others at once, also if the statement is
// slow.
func TestLeaseTableCloseTakesLong(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db, ended := slowToEnd(t, o)
		s := session(t, db, append(o.Options(), sqllock.WithLease(time.Hour))...)
		other := process(t, o)
		mustLock(t, s, sqllock.ID(1))
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !ended.Load() {
			t.Error("Close has returned before the session's rows were deleted")
		}
		if err := mustLock(t, other, sqllock.ID(1)).Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A session that ends because it has lost one of its locks releases the others
// too.
func TestLeaseTableLossTakesLong(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		db, _ := slowToEnd(t, o)
		s := session(t, db, append(o.Options(), sqllock.WithLease(time.Hour))...)
		other := process(t, o)
		gone := mustLock(t, s, sqllock.ID(1))
		mustLock(t, s, sqllock.ID(2))
		execute(t, open(t, o.Driver, o.DSN), "DELETE FROM latchkey_locks WHERE key_id = 1")
		if err := gone.Unlock(); err != sqllock.ErrLost {
			t.Fatalf("Unlock of a lock whose row is gone: %v, want ErrLost", err)
		}
		lockertest.Eventually(t, "the other key of the session is free", func() bool {
			lock, err := other.TryLock(t.Context(), sqllock.ID(2))
			return err == nil && lock.Unlock() == nil
		})
	})
}
