package faults

import (
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A tally is what a process has lost so far.
type tally struct {
	Process     int
	Connections uint64
	Locks       int64
}

func TestEffect(t *testing.T) {
	calm := []tally{{Process: 1, Connections: 3, Locks: 5}, {Process: 2, Connections: 1, Locks: 1}}
	change := func(i int, d tally) []tally {
		after := []tally{calm[0], calm[1]}
		after[i].Process += d.Process
		after[i].Connections += d.Connections
		after[i].Locks += d.Locks
		return after
	}
	tests := []struct {
		name   string
		effect Effect
		after  []tally
		victim int
		ok     bool
		lost   int64
	}{
		{"calm", NothingLost, calm, 1, true, 0},
		{"a lock too many", NothingLost, change(1, tally{Locks: 1}), 1, false, 1},
		{"a connection too many", NothingLost, change(0, tally{Connections: 1}), 1, false, 0},
		{"another process in its place", NothingLost, change(0, tally{Process: 9, Connections: 9}), 1, true, 0},
		{"noticed", VictimLoses, change(1, tally{Connections: 1, Locks: 4}), 2, true, 4},
		{"not noticed", VictimLoses, calm, 2, false, 0},
		{"another noticed as well", VictimLoses, []tally{{Process: 1, Connections: 4, Locks: 5}, {Process: 2, Connections: 2, Locks: 1}}, 2, false, 0},
		{"another lost a lock as well", VictimLoses, []tally{{Process: 1, Connections: 3, Locks: 6}, {Process: 2, Connections: 2, Locks: 1}}, 2, false, 1},
		{"another noticed as well, and may", VictimAtLeast, []tally{{Process: 1, Connections: 4, Locks: 5}, {Process: 2, Connections: 2, Locks: 1}}, 2, true, 0},
		{"the victim noticed, and may", VictimAtMost, change(1, tally{Connections: 1, Locks: 2}), 2, true, 2},
		{"not all noticed", AllLose, change(0, tally{Connections: 1}), 0, false, 0},
		{"whatever", Any, change(0, tally{Connections: 2, Locks: 2}), 0, true, 2},
	}
	statuses := func(all []tally) (of []status) {
		for _, s := range all {
			of = append(of, status{s.Process, worker.Status{Connections: s.Connections, Lost: s.Locks}})
		}
		return of
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var victim *fleet.Member
			if tt.victim > 0 {
				victim = &fleet.Member{Number: tt.victim}
			}
			lost, err := tt.effect.check(statuses(calm), statuses(tt.after), victim)
			if (err == nil) != tt.ok || err != nil && !errors.Is(err, ErrViolated) || lost != tt.lost {
				t.Errorf("check: %d lost, %v; want %d, ok %v", lost, err, tt.lost, tt.ok)
			}
		})
	}
}
