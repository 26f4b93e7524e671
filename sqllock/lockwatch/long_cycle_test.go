package lockwatch_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A cycle of many processes is built once: the work grows with its
// length, and not with the square.
func TestLongCycle(t *testing.T) {
	const n = 400
	s := &lockwatch.Snapshot{}
	for i := range n {
		next := (i + 1) % n
		s.Holders = append(s.Holders, held(i+1, int64(i)))
		s.Waiters = append(s.Waiters, waits(i+1, int64(next), next+1))
	}
	if cycles := s.Cycles(); len(cycles) != 1 || len(cycles[0].Waits) != n {
		t.Fatalf("%d cycles, want one of %d waits", len(cycles), n)
	}
	if allocations := testing.AllocsPerRun(1, func() { s.Cycles() }); allocations > 100*n {
		t.Errorf("%.0f allocations for %d waits", allocations, n)
	}
}
