package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A key that nobody holds is granted, unless there is trouble.
func TestLeaks(t *testing.T) {
	trouble := func(from, to float64) Option { return WithTrouble(sec(from), sec(to)) }
	cut := join(list(granted(1, 1, 0, 1), held(1, 1, 1, 1)), list(fault(kill, 1, 20, 20)))
	listening := join(list(granted(1, 1, 0, 1), listens(held(1, 1, 1, 1))), list(fault(kill, 1, 20, 20)))
	for _, tt := range []struct {
		name   string
		events []history.Event
		opt    Option
		leaks  int
	}{
		{"refused while it is given back", join(turn(1, 1, 0, 3), refusals(2, 5), turn(2, 2, 5, 7)), trouble(99, 99), 0},
		{"refused for ever", join(turn(1, 1, 0, 3), refusals(3, 900)), trouble(99, 99), 1},
		{"refused for ever, and somebody gave up", join(turn(1, 1, 0, 3), list(tried(2, 3, 3.1, history.GaveUp)), refusals(3, 900)), trouble(99, 99), 1},
		{"refused from the beginning", refusals(1, 900), trouble(99, 99), 1},
		{"refused, then granted", join(turn(1, 1, 0, 3), refusals(3, 90), turn(2, 2, 90, 91)), trouble(99, 99), 1},
		{"twice", join(turn(1, 1, 0, 3), refusals(3, 90), turn(2, 2, 90, 91), refusals(91, 200)), trouble(99, 99), 2},
		{"refused while there was trouble", join(turn(1, 1, 0, 3), refusals(3, 90)), trouble(1, 89), 0},
		{"refused long after the trouble", join(turn(1, 1, 0, 3), refusals(3, 90)), trouble(1, 50), 1},
		{"refused while a grant was on its way", join(turn(1, 1, 0, 3), refusals(20, 30), list(granted(2, 2, 19, 31), held(2, 2, 31, 32))), trouble(99, 99), 0},
		{"refused while held", join(turn(1, 1, 0, 90), refusals(2, 90)), trouble(99, 99), 0},
		{"refused while a process listens that is killed then", join(listening, refusals(1, 21)), trouble(99, 99), 0},
		{"refused while a process that looks at its lock is killed later", join(cut, refusals(1, 21)), trouble(99, 99), 1},
		{"refused while another process is killed later", join(listening[:2], list(fault(kill, 2, 20, 20)), refusals(1, 21)), trouble(99, 99), 1},
		{"refused for ever after that", join(listening, refusals(1, 900)), trouble(99, 99), 1},
	} {
		report := Sweep(tt.events, tt.opt, WithFree(5*time.Second), WithKills(kill))
		if len(report.Leaks) != tt.leaks || errors.Is(report.Err(), ErrLeaked) != (tt.leaks > 0) {
			t.Errorf("%s: %+v, want %d", tt.name, report.Leaks, tt.leaks)
		}
	}
}

// A key that one process is granted again and again, and others never, although
// nobody holds it in between.
func TestMonopoly(t *testing.T) {
	var turns []history.Event // process 1 has the key for the first half of each second
	for i := range 40 {
		turns = append(turns, turn(1, int64(1+i), float64(i), float64(i)+0.5)...)
	}
	other := func(process int, from, to int, at float64) (all []history.Event) {
		for i := from; i < to; i++ {
			all = append(all, refused(process, float64(i)+at, float64(i)+at+0.1))
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		events []history.Event
		from   float64 // of trouble, which lasts for 10 s
		leaks  int
	}{
		{"others are refused while it is free", join(turns, other(2, 0, 40, 0.7)), 99, 1},
		{"others are refused while it is held", join(turns, other(2, 0, 40, 0.2)), 99, 0},
		{"the process itself is refused", join(turns, other(1, 0, 40, 0.7)), 99, 0},
		{"a few times", join(turns, other(2, 0, 19, 0.7)), 99, 0},
		{"while there was trouble", join(turns, other(2, 0, 30, 0.7)), 12, 0},
		{"long after the trouble", join(turns, other(2, 0, 40, 0.7)), 5, 1},
		{"somebody else was granted it in between", join(turns, other(2, 0, 38, 0.7), turn(3, 99, 19.55, 19.65)), 99, 0},
	} {
		report := Sweep(tt.events, WithTrouble(sec(tt.from), sec(tt.from+10)), WithFree(5*time.Second))
		if len(report.Leaks) != tt.leaks || tt.leaks > 0 && report.Leaks[0].Process != 1 {
			t.Errorf("%s: %+v, want %d", tt.name, report.Leaks, tt.leaks)
		}
	}
}
