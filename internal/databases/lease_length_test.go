package databases

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lease table keeps a session for the whole of its lease. Nothing that another
// session does ends it before.
func TestLeaseTableKeepsALeaseWhole(t *testing.T) {
	eachLeaseTable(t, func(t *testing.T, o lockertest.Orders) {
		holder := process(t, o, sqllock.WithLease(time.Hour))
		lock := mustLock(t, holder, sqllock.ID(1))
		other := process(t, o, sqllock.WithLease(time.Hour)) // removes what has expired
		if _, err := other.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of a key that is held: %v, want ErrHeld", err)
		}
		left := "SELECT CAST(extract(epoch FROM min(expires) - clock_timestamp()) AS integer) FROM latchkey_sessions"
		if o.Driver == "sqlite" {
			left = "SELECT (min(expires) - CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)) / 1000 FROM latchkey_sessions"
		}
		if seconds := number(t, pool(t, o), left); seconds < 50*60 {
			t.Errorf("of an hour's lease %d s are left", seconds)
		}
		if err := lock.Err(); err != nil {
			t.Error(err)
		}
	})
}
