package databases

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/subprocess"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestTwoProcessesOneKey(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		o.Rounds = 1
		lockertest.Processes(t, o, o)
	})
}

// The locks of a process that is killed, or frozen for longer than its lease, are
// free to other processes. They need not wait for it.
func TestLongDeadHolder(t *testing.T) {
	eachKind(t, func(t *testing.T, _ kind, o lockertest.Orders) {
		for i, fault := range []func(*subprocess.Process) error{(*subprocess.Process).Kill, (*subprocess.Process).Freeze} {
			const n = 20
			held := o
			held.Locks, held.Lease = n, 5*time.Second
			s := process(t, o)
			holder := lockertest.StartHolder(t, held)
			for i := range n {
				if _, err := s.TryLock(t.Context(), lockertest.WorkerKey(i)); i == 0 && !errors.Is(err, sqllock.ErrHeld) {
					t.Fatalf("TryLock of a key that another process holds: %v", err)
				}
			}
			must(t, fault(holder))
			for i := range n {
				awaitGrant(t, "the keys of the other process are free", s, lockertest.WorkerKey(i))
			}
			if i == 1 {
				_ = holder.Thaw()
			}
		}
	})
}
