package faults

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func TestEffect(t *testing.T) {
	// What each process has lost.
	has := func(process int, connections uint64, locks int64) status {
		return status{process, worker.Status{Connections: connections, Lost: locks}}
	}
	first, second := has(1, 3, 5), has(2, 1, 1)
	calm := []status{first, second}
	tests := []struct {
		name   string
		effect Effect
		after  []status
		victim int
		ok     bool
		lost   int64
	}{
		{"calm", NothingLost, calm, 1, true, 0},
		{"a lock too many", NothingLost, []status{first, has(2, 1, 2)}, 1, false, 1},
		{"a connection too many", NothingLost, []status{has(1, 4, 5), second}, 1, false, 0},
		{"another process in its place", NothingLost, []status{has(10, 12, 5), second}, 1, true, 0},
		{"noticed", VictimLoses, []status{first, has(2, 2, 5)}, 2, true, 4},
		{"not noticed", VictimLoses, calm, 2, false, 0},
		{"another noticed as well", VictimLoses, []status{has(1, 4, 5), has(2, 2, 1)}, 2, false, 0},
		{"another lost a lock as well", VictimLoses, []status{has(1, 3, 6), has(2, 2, 1)}, 2, false, 1},
		{"another noticed as well, and may", VictimAtLeast, []status{has(1, 4, 5), has(2, 2, 1)}, 2, true, 0},
		{"the victim noticed, and may", VictimAtMost, []status{first, has(2, 2, 3)}, 2, true, 2},
		{"not all noticed", AllLose, []status{has(1, 4, 5), second}, 0, false, 0},
		{"whatever", Any, []status{has(1, 5, 7), second}, 0, true, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var victim *fleet.Member
			if tt.victim > 0 {
				victim = &fleet.Member{Number: tt.victim}
			}
			lost, err := tt.effect.check(calm, tt.after, victim)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrViolated) || lost != tt.lost {
				t.Errorf("check: %d lost, %v; want %d, ok %v", lost, err, tt.lost, tt.ok)
			}
		})
	}
}

// Only a fault that costs locks for certain, or ends their process, bounds when
// keys come back: else a later fault may have cost the lock.
func TestOnlyCertainLossesBoundTheReturn(t *testing.T) {
	for _, row := range table {
		for store, p := range row.On {
			if p.Back > 0 && !p.Effect.Costs() && row.Does != Kills {
				t.Errorf("row %d promises on %s that keys come back, and need not cost locks", row.Number, store)
			}
		}
	}
}
