package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A key that nobody holds is granted, unless there is trouble.
func TestLeaks(t *testing.T) {
	trouble := func(from, to float64) Facts {
		return with(func(f *Facts) {
			f.Free, f.Trouble = 5*time.Second, []history.Fault{{Begin: sec(from), End: sec(to)}}
		})
	}
	cut := join(list(granted(1, 1, 0, 1), held(1, 1, 1, 1)), list(fault(kill, 1, 20, 20)))
	heard := join(list(granted(1, 1, 0, 1), listening(held(1, 1, 1, 1))), list(fault(kill, 1, 20, 20)))
	for _, tt := range []struct {
		name   string
		events []history.Event
		opt    Facts
		leaks  int
	}{
		{"refused while it is given back", join(turn(1, 1, 0, 3), often(2, 5), turn(2, 2, 5, 7)), trouble(99, 99), 0},
		{"refused for ever", join(turn(1, 1, 0, 3), often(3, 900)), trouble(99, 99), 1},
		{"refused for ever, and somebody gave up", join(turn(1, 1, 0, 3), list(tried(2, 3, 3.1, history.GaveUp)), often(3, 900)), trouble(99, 99), 1},
		{"refused from the beginning", often(1, 900), trouble(99, 99), 1},
		{"refused, then granted", join(turn(1, 1, 0, 3), often(3, 90), turn(2, 2, 90, 91)), trouble(99, 99), 1},
		{"twice", join(turn(1, 1, 0, 3), often(3, 90), turn(2, 2, 90, 91), often(91, 200)), trouble(99, 99), 2},
		{"refused while there was trouble", join(turn(1, 1, 0, 3), often(3, 90)), trouble(1, 89), 0},
		{"refused long after the trouble", join(turn(1, 1, 0, 3), often(3, 90)), trouble(1, 50), 1},
		{"refused while a grant was on its way", join(turn(1, 1, 0, 3), often(20, 30), list(granted(2, 2, 19, 31), held(2, 2, 31, 32))), trouble(99, 99), 0},
		{"refused while held", join(turn(1, 1, 0, 90), often(2, 90)), trouble(99, 99), 0},
		{"refused while a process listens that is killed then", join(heard, often(1, 21)), trouble(99, 99), 0},
		{"refused while a process that looks at its lock is killed later", join(cut, often(1, 21)), trouble(99, 99), 1},
		{"refused while another process is killed later", join(heard[:2], list(fault(kill, 2, 20, 20)), often(1, 21)), trouble(99, 99), 1},
		{"refused for ever after that", join(heard, often(1, 900)), trouble(99, 99), 1},
	} {
		if err := Sweep(tt.events, tt.opt).Err(); errors.Is(err, ErrLeaked) != (tt.leaks > 0) {
			t.Errorf("%s: %v, want %d", tt.name, err, tt.leaks)
		}
	}
}

func listening(e history.Event) history.Event {
	e.Hold.Listens = true
	return e
}
