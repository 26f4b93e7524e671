package check

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// Rows of the fault table.
const (
	freeze = 2
	starve = 27
)

// Each rule has a history that breaks it and one beside it that does not.
func TestSweep(t *testing.T) {
	frozen := func(process int, begin, end float64) []Option {
		return []Option{WithFrozen(TimesOf(list(fault(freeze, process, begin, end)), freeze))}
	}
	starved := func(begin, end float64) []Option {
		return []Option{WithStarved(TimesOf(list(fault(starve, 0, begin, end)), starve))}
	}
	patient := []Option{WithCallTimeout(time.Second)}
	late := func(at float64) []history.Event { // told so late; the next holder has the key at 3.6
		return join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, at)), turn(2, 2, 3.5, 3.9))
	}
	tests := []struct {
		name   string
		events []history.Event
		opts   []Option
		want   error // nil: the guarantee held
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
		{name: "a lock never seen valid counts at its grant", events: list(held(1, 1, 1, 9), held(2, 2, 4, 0)), want: ErrOverlap},
		{name: "and then only", events: list(held(1, 1, 1, 0), held(2, 2, 4, 9))},
		{
			name: "but not if its process froze with the grant on its way", opts: frozen(2, 2, 3),
			events: list(held(1, 1, 1, 9), granted(2, 2, 0.5, 4), held(2, 2, 4, 0)),
		},
		{
			name: "another process froze", opts: frozen(1, 2, 3),
			events: list(held(1, 1, 1, 9), granted(2, 2, 0.5, 4), held(2, 2, 4, 0)), want: ErrOverlap,
		},
		{
			name: "what was valid is no excuse", opts: frozen(2, 2, 3),
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
			name: "frozen when it should have been told", opts: frozen(1, 3.1, 3.9),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)),
		},
		{
			name: "frozen before", opts: frozen(1, 2, 2.5),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)), want: ErrToldLate,
		},
		{
			name: "all frozen", opts: frozen(0, 3.1, 3.9),
			events: join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9)),
		},
		{name: "frozen, and told as soon as it woke up", opts: frozen(1, 3.1, 6), events: late(6.4)},
		{name: "frozen, and told long after it woke up", opts: frozen(1, 3.1, 6), events: late(23), want: ErrToldLate},
		{name: "starved, and told a little late", opts: starved(3.1, 9), events: late(3.9)},
		{name: "starved, and told much later", opts: starved(3.1, 9), events: late(4.2), want: ErrToldLate},
		{name: "starved for a moment, long ago", opts: starved(3.1, 3.11), events: late(3.9), want: ErrToldLate},
		{
			name: "starved, with a grant on its way that was told at first sight", opts: starved(2, 9),
			events: list(held(1, 1, 1, 9), granted(2, 2, 0.5, 4), told(2, 2, 4, 0, 4.1)),
		},
		{
			name: "starved, with a grant that was seen valid", opts: starved(2, 9),
			events: list(held(1, 1, 1, 9), granted(2, 2, 0.5, 4), held(2, 2, 4, 0)), want: ErrOverlap,
		},
		{
			name: "starved, and what others were granted meanwhile counts", opts: starved(3.4, 9),
			events: late(5), want: ErrToldLate,
		},

		{name: "a call that fails", events: list(tried(1, 1, 2, history.Failed)), want: ErrFailed},
		{name: "a call of a session that nobody closed", events: list(tried(1, 1, 2, history.Closed)), want: ErrFailed},
		{name: "an Unlock that fails", events: list(unlocked(1, 1, 1, 2, 3, 4, history.Failed)), want: ErrFailed},
		{name: "any time will do", events: list(refused(1, 1, 100))},
		{name: "a call that takes too long", opts: patient, events: list(refused(1, 1, 100)), want: ErrLong},
		{name: "one in a slow network", opts: append([]Option{WithSlow(TimesOf(list(fault(freeze, 1, 2, 3)), freeze))}, patient...), events: list(refused(1, 1, 2.9))},
		{name: "an Unlock that takes too long in a slow network", opts: append([]Option{WithSlow(TimesOf(list(fault(freeze, 1, 2, 3)), freeze))}, patient...), events: list(unlocked(1, 1, 1, 2, 3, 4.9, history.OK)), want: ErrLong},
		{name: "one that takes too long in a slow network", opts: append([]Option{WithSlow(TimesOf(list(fault(freeze, 1, 2, 3)), freeze))}, patient...), events: list(refused(1, 1, 100)), want: ErrLong},
		{name: "one that waits", opts: patient, events: list(waiting(refused(1, 1, 100)))},
		{name: "one that takes a moment", opts: patient, events: list(refused(1, 1, 1.9))},
		{name: "an Unlock that takes too long", opts: patient, events: list(unlocked(1, 1, 1, 2, 3, 62, history.OK)), want: ErrLong},
		{name: "a call of a frozen process", opts: append(frozen(1, 1.5, 99.5), patient...), events: list(refused(1, 1, 100))},
		{name: "one that takes too long without the freeze", opts: append(frozen(1, 1.5, 98), patient...), events: list(refused(1, 1, 100)), want: ErrLong},

		{
			name: "a grant from before a freeze is not the next", opts: frozen(2, 0.2, 2),
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
			report := Sweep(tt.events, tt.opts...)
			if err := report.Err(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v\n%s", err, tt.want, report)
			}
		})
	}
}

// A short lock does not hide the long one before it.
func TestOverlaps(t *testing.T) {
	report := Sweep(list(held(1, 1, 1, 9), held(2, 2, 3, 4), held(3, 3, 8, 10), held(1, 4, 9.5, 11)))
	want := []Overlap{
		{Key: key, First: 1, Second: 2, From: sec(3), To: sec(4)},
		{Key: key, First: 1, Second: 3, From: sec(8), To: sec(9)},
		{Key: key, First: 3, Second: 4, From: sec(9.5), To: sec(10)},
	}
	if !slices.Equal(report.Overlaps, want) {
		t.Errorf("got %+v, want %+v", report.Overlaps, want)
	}
}

// An excuse is for two locks, and hides no third.
func TestExcuse(t *testing.T) {
	excuse := WithExcuse(func(a, b Grant) bool { return a.Lock == 1 || b.Lock == 1 })
	report := Sweep(list(held(1, 1, 1, 9), held(2, 2, 3, 6), held(3, 3, 5, 7)), excuse)
	want := []Overlap{{Key: key, First: 2, Second: 3, From: sec(5), To: sec(6)}}
	excused := []Overlap{{Key: key, First: 1, Second: 2, From: sec(3), To: sec(6)}, {Key: key, First: 1, Second: 3, From: sec(5), To: sec(7)}}
	if !slices.Equal(report.Overlaps, want) || !slices.Equal(report.Excused, excused) {
		t.Errorf("got %+v, excused %+v; want %+v and %+v", report.Overlaps, report.Excused, want, excused)
	}
	late := join(list(granted(1, 1, 0, 1), told(1, 1, 1, 3, 4)), turn(2, 2, 3.5, 3.9))
	if err := Sweep(late, excuse).Err(); err != nil {
		t.Error(err)
	}
}

// A lost lock that only its Unlock says to be lost is lost.
func TestLostByUnlock(t *testing.T) {
	report := Sweep(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 2, 3, 4, history.Lost)))
	if report.Losses != 1 {
		t.Errorf("%d losses, want 1", report.Losses)
	}
}
