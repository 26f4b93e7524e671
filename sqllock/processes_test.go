package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestTwoProcessesOneKey(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	var orders []lockertest.Orders
	for _, driver := range pgtest.Drivers() {
		orders = append(orders, lockertest.Orders{Driver: driver, DSN: dsn, Rounds: 20})
	}
	lockertest.Processes(t, orders...)
}

func TestKilledHolder(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		const n = 100
		s := session(t, driver, dsn)
		holder := lockertest.StartHolder(t, lockertest.Orders{Driver: driver, DSN: dsn, Locks: n})
		for i := range n {
			if _, err := s.TryLock(t.Context(), lockertest.WorkerKey(i)); !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("TryLock of a key that another process holds: %v", err)
			}
		}
		killed := time.Now()
		if err := holder.Kill(); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			lock, err := s.Lock(ctx, lockertest.WorkerKey(i))
			cancel()
			if err != nil {
				t.Fatalf("a killed process's lock is not free within a second: %v", err)
			}
			defer lock.Unlock()
		}
		t.Logf("%d locks of a killed process are acquired by another after %v", n, time.Since(killed).Round(time.Millisecond))
	})
}
