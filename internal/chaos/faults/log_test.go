package faults

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Two locks that were held one after the other do not overlap in the log. Two
// that were held at once do.
func TestEventLog(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	take := func(m *sqllock.Memory, d *eventLog, process int) *loggedLock {
		lock, err := m.TryLock(t.Context(), sqllock.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		k := d.record(process, lock)
		k.hold(ended)
		return k
	}
	one, other, d := sqllock.NewMemory(), sqllock.NewMemory(), new(eventLog)
	take(one, d, 1).giveBack()
	take(one, d, 2).giveBack()
	apart := d.take()
	if r := check.Sweep(apart); len(apart) != 2 || r.Err() != nil {
		t.Errorf("%d locks one after the other: %v", len(apart), r.Err())
	}
	first := take(one, d, 1)
	second := take(other, d, 2) // of another server
	first.hold(ended)
	first.giveBack()
	second.giveBack()
	beside := d.take()
	if r := check.Sweep(beside); len(beside) != 2 || len(r.Overlaps) != 1 {
		t.Errorf("%d locks beside each other: %d overlaps", len(beside), len(r.Overlaps))
	}
	if got := beside[0].Hold; got.Unlock != history.OK || got.Told != 0 || got.Lock != 3 {
		t.Errorf("the third lock is noted as %+v", got)
	}
}
