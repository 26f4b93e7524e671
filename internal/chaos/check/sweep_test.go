package check

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const ms = history.Moment(time.Millisecond)

// Rows of the fault table.
const (
	kill   = 1
	freeze = 2
	slow   = 9
)

// tabled are the facts about histories in tables.
var tabled = Facts{Kills: []int{kill}, Freezes: []int{freeze}, Slows: []int{slow}}

func with(change func(*Facts)) Facts {
	facts := tabled
	change(&facts)
	return facts
}

// Each rule has a history that breaks it and a similar one that does not.
func TestSweep(t *testing.T) {
	frozen := func(process int, begin, end float64) []history.Event { return list(fault(freeze, process, begin, end)) }
	slowed := list(fault(slow, 1, 2, 3))
	late := func(at float64) []history.Event { // told so late; the next holder has the key at 3.6
		return join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, at)), turn(2, 2, 3.5, 3.9))
	}
	tests := []struct {
		name    string
		faults  []history.Event
		patient bool // calls are bounded
		events  []history.Event
		want    error // nil: the guarantee held
	}{
		{name: "nothing"},
		{name: "one after the other", events: join(turn(1, 1, 0, 3), turn(2, 2, 3, 5))},
		{name: "at once", events: list(unlocked(1, 1, 1, 5, 6, 7, history.OK), unlocked(2, 2, 4, 8, 9, 10, history.OK)), want: ErrOverlap},
		{name: "inside", events: list(unlocked(1, 1, 1, 9, 9, 10, history.OK), unlocked(2, 2, 4, 5, 6, 7, history.OK)), want: ErrOverlap},
		{name: "at one moment", events: list(unlocked(1, 1, 1, 4, 6, 7, history.OK), unlocked(2, 2, 4, 5, 6, 7, history.OK)), want: ErrOverlap},
		{name: "no longer seen valid", events: list(told(1, 1, 1, 3.9, 4), unlocked(2, 2, 4, 5, 6, 7, history.OK))},
		{name: "at once, of different keys", events: join(onKey(1, list(held(1, 1, 1, 5))), onKey(2, list(held(2, 2, 1, 5))))},
		{name: "the last line counts", events: list(held(1, 1, 1, 9), unlocked(1, 1, 1, 3, 3, 4, history.OK), held(2, 2, 4, 6))},
		{name: "the last line counts, the other way round", events: list(held(1, 1, 1, 1), held(1, 1, 1, 9), held(2, 2, 4, 6)), want: ErrOverlap},
		{name: "a lock that was never seen valid proves nothing", events: list(held(1, 1, 1, 9), held(2, 2, 4, 0))},
		{
			name: "what was valid is no excuse", faults: frozen(2, 2, 3),
			events: list(held(1, 1, 1, 9), granted(2, 2, 0.5, 4), held(2, 2, 4, 5)), want: ErrOverlap,
		},

		{name: "valid after the loss", events: list(told(1, 1, 1, 5, 4)), want: ErrResurrected},
		{name: "valid until the loss", events: list(told(1, 1, 1, 4, 4))},

		{name: "told before the next grant", events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.95, 6))},
		{name: "told in the moment of the next grant", events: list(told(1, 1, 1, 3, 4), granted(2, 2, 3, 4), held(2, 2, 4.5, 5))},
		{name: "told after the next grant", events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)), want: ErrToldLate},
		{name: "the grant before is not the next", events: join(turn(2, 2, 0, 1), list(granted(1, 1, 1, 1.5), told(1, 1, 1.5, 3, 4)))},
		{name: "the next of another key", events: join(list(told(1, 1, 1, 3, 4)), onKey(8, turn(2, 2, 3.2, 3.8)))},
		{name: "never told, since it was not lost", events: join(list(granted(1, 1, 0, 1), held(1, 1, 1, 2)), turn(2, 2, 3, 5))},
		{
			name: "frozen when it should have been told", faults: frozen(1, 3.1, 3.9),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)),
		},
		{
			name: "frozen before", faults: frozen(1, 2, 2.5),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)), want: ErrToldLate,
		},
		{
			name: "all frozen", faults: frozen(0, 3.1, 3.9),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)),
		},
		{name: "frozen, and told as soon as it woke up", faults: frozen(1, 3.1, 6), events: late(6.4)},
		{name: "frozen, and told long after it woke up", faults: frozen(1, 3.1, 6), events: late(23), want: ErrToldLate},

		{name: "a call that fails", events: list(tried(1, 1, 2, history.Failed)), want: ErrFailed},
		{name: "a call of a session that nobody closed", events: list(tried(1, 1, 2, history.Closed)), want: ErrFailed},
		{name: "an Unlock that fails", events: list(unlocked(1, 1, 1, 2, 3, 4, history.Failed)), want: ErrFailed},
		{name: "any time will do", events: list(tried(1, 1, 100, history.Capacity))},
		{name: "a call that takes too long", patient: true, events: list(tried(1, 1, 100, history.Capacity)), want: ErrLong},
		{name: "one in a slow network", faults: slowed, patient: true, events: list(tried(1, 1, 2.9, history.Capacity))},
		{name: "an Unlock that takes too long in a slow network", faults: slowed, patient: true, events: list(unlocked(1, 1, 1, 2, 3, 4.9, history.OK)), want: ErrLong},
		{name: "one that takes too long in a slow network", faults: slowed, patient: true, events: list(tried(1, 1, 100, history.Capacity)), want: ErrLong},
		{name: "one that waits", patient: true, events: list(waiting(tried(1, 1, 100, history.GaveUp)))},
		{name: "one that takes a moment", patient: true, events: list(tried(1, 1, 1.9, history.Capacity))},
		{name: "an Unlock that takes too long", patient: true, events: list(unlocked(1, 1, 1, 2, 3, 62, history.OK)), want: ErrLong},
		{name: "a call of a frozen process", faults: frozen(1, 1.5, 99.5), patient: true, events: list(tried(1, 1, 100, history.Capacity))},
		{name: "one that takes too long without the freeze", faults: frozen(1, 1.5, 98), patient: true, events: list(tried(1, 1, 100, history.Capacity)), want: ErrLong},

		{
			name: "a grant from before a freeze is not the next", faults: frozen(2, 0.2, 2),
			events: list(granted(2, 2, 0.1, 2.5), told(2, 2, 2.5, 0, 2.6), granted(1, 1, 1, 2), told(1, 1, 2, 0, 3)),
		},

		{name: "granted twice", events: list(granted(1, 1, 0, 1), granted(2, 1, 2, 3)), want: ErrMalformed},
		{name: "without a number", events: list(granted(1, 0, 0, 1)), want: ErrMalformed},
		{name: "ends before it begins", events: list(refused(1, 2, 1)), want: ErrMalformed},
		{name: "held by another process than asked", events: list(granted(1, 1, 0, 1), held(2, 1, 1, 2)), want: ErrMalformed},
		{name: "held before it was granted", events: list(granted(1, 1, 0, 2), held(1, 1, 1, 2)), want: ErrMalformed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := tabled
			if tt.patient {
				facts.CallTimeout = time.Second
			}
			if err := Sweep(append(tt.events, tt.faults...), facts).Err(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A short lock does not hide the long one before it. An excuse is for two locks,
// and hides no third.
func TestOverlaps(t *testing.T) {
	report := Sweep(list(held(1, 1, 1, 9), held(2, 2, 3, 4), held(3, 3, 8, 10), held(1, 4, 9.5, 11)), tabled)
	want := []Overlap{{key, 1, 2, sec(3), sec(4)}, {key, 1, 3, sec(8), sec(9)}, {key, 3, 4, sec(9.5), sec(10)}}
	if !slices.Equal(report.Overlaps, want) {
		t.Errorf("got %+v, want %+v", report.Overlaps, want)
	}
	excuse := with(func(f *Facts) { f.Excuse = func(a, b Grant) bool { return a.Lock == 1 || b.Lock == 1 } })
	report = Sweep(list(held(1, 1, 1, 9), held(2, 2, 3, 6), held(3, 3, 5, 7)), excuse)
	want = []Overlap{{key, 2, 3, sec(5), sec(6)}}
	excused := []Overlap{{key, 1, 2, sec(3), sec(6)}, {key, 1, 3, sec(5), sec(7)}}
	if !slices.Equal(report.Overlaps, want) || !slices.Equal(report.Excused, excused) {
		t.Errorf("got %+v, excused %+v; want %+v and %+v", report.Overlaps, report.Excused, want, excused)
	}
	late := join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9))
	if err := Sweep(late, excuse).Err(); err != nil {
		t.Error(err)
	}
}

// A history lacks nothing but what a killed process could not write.
func TestComplete(t *testing.T) {
	for _, tt := range []struct {
		name   string
		events []history.Event
		want   error
	}{
		{"whole", turn(1, 1, 0, 3), nil},
		{"no Try", turn(1, 1, 0, 3)[1:], ErrMalformed},
		{"no Hold", turn(1, 1, 0, 3)[:1], ErrMalformed},
		{"no end", list(granted(1, 1, 0, 1), held(1, 1, 1, 2)), ErrMalformed},
		{"no end, since it was killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 1, 3, 3)), nil},
		{"no end, and a kill that could not be made", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 0, 3, 3)), ErrMalformed},
		{"another was killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(kill, 2, 3, 3)), ErrMalformed},
		{"frozen, not killed", list(granted(1, 1, 0, 1), held(1, 1, 1, 2), fault(freeze, 1, 3, 3)), ErrMalformed},
	} {
		if err := Sweep(tt.events, with(func(f *Facts) { f.Complete = true })).Err(); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestUnsafe(t *testing.T) {
	if err := Unsafe(errors.Join(ErrSlow, errors.Join(ErrLong, errors.New("no rule")))); err != nil {
		t.Errorf("a slow machine may do that: %v", err)
	}
	if err := Unsafe(errors.Join(ErrSlow, (&Report{Findings: []Finding{{Rule: ErrOverlap}}}).Err())); !errors.Is(err, ErrOverlap) || errors.Is(err, ErrSlow) {
		t.Errorf("got %v, want ErrOverlap alone", err)
	}
}
