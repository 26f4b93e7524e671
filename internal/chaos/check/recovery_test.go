package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// How long keys stay away after a fault at second 10 that is mended at 20.
func TestRecovery(t *testing.T) {
	victim := join(list(granted(1, 1, 0, 1), held(1, 1, 1, 9)))
	tests := []struct {
		name   string
		events []history.Event
		origin Origin
		bound  time.Duration
		want   Recovery // of it the counts and Max
		slow   bool
	}{
		{name: "in time", events: join(victim, turn(2, 2, 11, 13)), bound: 1200 * time.Millisecond, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}},
		{name: "too late", events: join(victim, turn(2, 2, 11, 13)), bound: time.Second, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}, slow: true},
		{name: "from the end", events: join(victim, turn(2, 2, 21, 23)), origin: FromEnd, bound: 2 * time.Second, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}},
		{name: "before the end", events: join(victim, turn(2, 2, 12, 13)), origin: FromEnd, bound: time.Second, want: Recovery{Keys: 1}},
		{name: "without the time in which the next holder was cut off", events: join(victim, list(granted(5, 2, 20.5, 24.1), held(5, 2, 24.1, 25))), origin: FromEnd, bound: 2200 * time.Millisecond, want: Recovery{Keys: 1, Max: 2100 * time.Millisecond}},
		{name: "others were refused before the next holder was cut off", events: join(victim, list(refused(2, 22.1, 22.4)), list(granted(5, 2, 22.9, 24.1), held(5, 2, 24.1, 25))), origin: FromEnd, bound: 2 * time.Second, want: Recovery{Keys: 1, Max: 4 * time.Second}, slow: true},
		{name: "too late without that time", events: join(victim, list(granted(5, 2, 20.5, 24.1), held(5, 2, 24.1, 25))), origin: FromEnd, bound: 2 * time.Second, want: Recovery{Keys: 1, Max: 2100 * time.Millisecond}, slow: true},
		{name: "too late, and the victim has it again", events: join(victim, turn(1, 2, 11, 13)), bound: time.Second, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}, slow: true},
		{name: "never, though wanted", events: join(victim, list(refused(2, 12, 12.1))), bound: time.Second, want: Recovery{Never: 1}, slow: true},
		{name: "never, and no call met a database", events: join(victim, list(tried(2, 12, 12.1, history.Unavailable))), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "never, and waited for past the bound", events: join(victim, list(waiting(tried(2, 10.5, 12, history.GaveUp)))), bound: time.Second, want: Recovery{Never: 1}, slow: true},
		{name: "wanted within the bound only", events: join(victim, list(refused(2, 10.5, 10.6))), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "asked for long after the bound", events: join(victim, list(refused(2, 10.5, 10.6)), turn(2, 2, 14, 15)), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "asked for after the bound, and cancelled at first", events: join(victim, list(tried(2, 12, 12.1, history.GaveUp)), turn(2, 2, 14, 15)), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "refused after the bound, then granted", events: join(victim, list(refused(2, 12, 12.1)), turn(2, 2, 14, 15)), bound: time.Second, want: Recovery{Keys: 1, Max: 4100 * time.Millisecond}, slow: true},
		{name: "waited for past the bound, then granted", events: join(victim, list(waiting(tried(2, 10.5, 12, history.GaveUp))), turn(2, 2, 14, 15)), bound: time.Second, want: Recovery{Keys: 1, Max: 4100 * time.Millisecond}, slow: true},
		{name: "waited for past the bound by a process that is cut off", events: join(victim, list(waiting(tried(1, 10.5, 12, history.GaveUp)), refused(1, 11.5, 11.6)), turn(2, 2, 14, 15)), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "kept and given back", events: join(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 29, 30, 31, history.OK)), turn(2, 2, 32, 33)), bound: time.Second, want: Recovery{Survived: 1}},
		{name: "granted at that moment", events: join(list(granted(1, 1, 9, 10), held(1, 1, 10, 10)), turn(2, 2, 11, 13)), bound: 2 * time.Second, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}},
		{name: "given back before", events: join(turn(1, 1, 0, 9), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "of another process", events: join(list(granted(3, 1, 0, 1), held(3, 1, 1, 9)), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "a lock that ended unseen long ago", events: join(victim, turn(2, 2, 5, 7), turn(2, 3, 32, 33)), bound: time.Second},
		{name: "without the time in which all were cut off", events: join(victim, list(granted(2, 2, 20.5, 56), held(2, 2, 56, 57))), origin: FromEnd, bound: 34 * time.Second, want: Recovery{Keys: 1, Max: 34 * time.Second}},
		{name: "too late without that time, which counts once", events: join(victim, list(granted(2, 2, 20.5, 56), held(2, 2, 56, 57))), origin: FromEnd, bound: 33 * time.Second, want: Recovery{Keys: 1, Max: 34 * time.Second}, slow: true},
		{name: "cut off with all before it asked, and alone after that", events: join(victim, list(granted(6, 2, 52.5, 56), held(6, 2, 56, 57))), origin: FromEnd, bound: 33 * time.Second, want: Recovery{Keys: 1, Max: 33 * time.Second}},
		{name: "cut off alone and with all at once", events: join(victim, list(granted(7, 2, 20.5, 56), held(7, 2, 56, 57))), origin: FromEnd, bound: 33 * time.Second, want: Recovery{Keys: 1, Max: 33500 * time.Millisecond}, slow: true},
		{name: "of several keys the longest", events: join(victim, turn(2, 2, 10.4, 11),
			onKey(8, list(granted(1, 3, 0, 1), held(1, 3, 1, 9))), onKey(8, turn(2, 4, 12.9, 14))),
			bound: 3 * time.Second, want: Recovery{Keys: 2, Max: 3 * time.Second, P50: 500 * time.Millisecond}},
	}
	cut := WithCut(TimesOf(list(fault(kill, 1, 10, 20), fault(freeze, 5, 21, 23), fault(freeze, 3, 20, 99),
		fault(freeze, 0, 50, 52), fault(freeze, 6, 53, 54), fault(freeze, 7, 51, 52.5)), kill, freeze))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := Sweep(append(tt.events, fault(kill, 1, 10, 20)), WithRecovery(kill, tt.origin, tt.bound), cut)
			if len(report.Recoveries) != 1 {
				t.Fatalf("%d rows, want 1", len(report.Recoveries))
			}
			got := *report.Recoveries[0]
			if got.Keys != tt.want.Keys || got.Survived != tt.want.Survived || got.Unasked != tt.want.Unasked ||
				got.Never != tt.want.Never || got.Max != tt.want.Max || tt.want.P50 != 0 && got.P50 != tt.want.P50 {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if slow := errors.Is(report.Err(), ErrSlow); slow != tt.slow {
				t.Errorf("slow: %v, want %v", slow, tt.slow)
			}
		})
	}
}
