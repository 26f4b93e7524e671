package sqllock_test

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestLongKilledHolder(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		const n = 100
		s := session(t, driver, dsn)
		holder := lockertest.StartHolder(t, lockertest.Orders{Driver: driver, DSN: dsn, Locks: n})
		for i := range n {
			if _, err := s.TryLock(t.Context(), lockertest.WorkerKey(i)); !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("TryLock of a key that another process holds: %v", err)
			}
		}
		if err := holder.Kill(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			servesAgain(t, s, lockertest.WorkerKey(i))
		}
	})
}

// Many callers of two processes acquire one key in turn.
func TestTwoProcessesOneKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var orders []lockertest.Orders
	for _, driver := range pgtest.Drivers() {
		orders = append(orders, lockertest.Orders{Driver: driver, DSN: dsn, Rounds: 3})
	}
	lockertest.Processes(t, orders...)
}
