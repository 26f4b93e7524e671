package databases

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestTwoProcessesOneKey(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		o.Rounds, o.Callers = 10, 32
		lockertest.Processes(t, o, o)
	})
}

// free waits until the keys of a worker are free, and acquires them.
func free(t *testing.T, s *sqllock.Session, n int) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range n {
		lock, err := s.Lock(ctx, lockertest.WorkerKey(i))
		if err != nil {
			t.Fatalf("a lock of a process that has ended: %v", err)
		}
		defer lock.Unlock()
	}
	return time.Since(began)
}

func TestLongKilledHolder(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		const n = 20
		o.Locks, o.Lease = n, 2*time.Second
		s := process(t, o)
		holder := lockertest.StartHolder(t, o)
		for i := range n {
			if _, err := s.TryLock(t.Context(), lockertest.WorkerKey(i)); !errors.Is(err, sqllock.ErrHeld) {
				t.Fatalf("TryLock of a key that another process holds: %v", err)
			}
		}
		if err := holder.Kill(); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d locks of a killed process are acquired by another after %v", n, free(t, s, n).Round(time.Millisecond))
	})
}

// A process that is frozen for longer than the lease has lost its locks. Other
// processes need not wait for it.
func TestLongFrozenHolder(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		const n = 20
		o.Locks, o.Lease = n, 2*time.Second
		s := process(t, o)
		holder := lockertest.StartHolder(t, o)
		if err := holder.Freeze(); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Thaw() }()
		t.Logf("%d locks of a frozen process are acquired by another after %v", n, free(t, s, n).Round(time.Millisecond))
	})
}
