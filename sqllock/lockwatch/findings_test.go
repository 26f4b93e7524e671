package lockwatch_test

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A Diagnosis reports a cycle from its second Snapshot on, until one without it.
func TestDiagnosis(t *testing.T) {
	t.Parallel()
	cycle := &lockwatch.Snapshot{At: noon, Holders: holders{held(1, 10), held(2, 20)}, Waiters: waiters{waits(1, 20, 2), waits(2, 10, 1)}}
	free := &lockwatch.Snapshot{At: noon.Add(3 * time.Second)}
	d := lockwatch.NewDiagnosis()
	for i, tt := range []struct {
		s                 *lockwatch.Snapshot
		begun, over, open int
	}{{cycle, 0, 0, 0}, {cycle, 1, 0, 1}, {cycle, 0, 0, 1}, {free, 0, 1, 0}} {
		begun, over := d.Look(tt.s)
		if len(begun) != tt.begun || len(over) != tt.over || len(d.Open()) != tt.open {
			t.Errorf("look %d: begun %v, over %v, open %v", i, begun, over, d.Open())
		}
	}
	long := lockwatch.NewDiagnosis(lockwatch.WithLongHeld(time.Minute))
	long.Look(&lockwatch.Snapshot{At: noon, Holders: holders{held(1, 10)}})
	begun, _ := long.Look(&lockwatch.Snapshot{At: noon.Add(2 * time.Minute), Holders: holders{held(1, 10)}})
	if len(begun) != 1 || begun[0].Kind != lockwatch.HeldLong || begun[0].Holder.Key != sqllock.ID(10) {
		t.Errorf("begun %v", begun)
	}
}
