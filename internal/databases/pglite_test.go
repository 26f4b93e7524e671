package databases

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// PGlite's socket server has one server process for all clients. So Open rejects
// it, and accepts it with a lease table.
func TestLongPGlite(t *testing.T) {
	t.Parallel()
	front, err := pgtest.PGlite(40)
	front = started(t, front, err)
	t.Cleanup(func() { _ = front.Close() })
	for _, driver := range pgtest.Drivers() {
		db := open(t, driver, front.DSN(""))
		s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(2*time.Second))
		if s != nil {
			_ = s.Close()
		}
		if !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), "pass WithLeaseTable()") {
			t.Errorf("%s: Open: %v, want ErrNotExclusive with advice", driver, err)
		}
		_ = db.Close()
		o := lockertest.Orders{Driver: driver, DSN: unprepared(driver, front.DSN("")), LeaseTable: true}
		a, b := process(t, o), process(t, o)
		lock := mustLock(t, a, sqllock.ID(1))
		if _, err := b.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("%s: TryLock of a held key: %v, want ErrHeld", driver, err)
		}
		mustUnlock(t, lock)
		mustUnlock(t, mustLock(t, b, sqllock.ID(1)))
	}
}
