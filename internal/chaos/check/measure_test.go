package check

import (
	"errors"
	"slices"
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
		atEnd  bool
		bound  time.Duration
		want   Times
		slow   bool
	}{
		{name: "in time", events: join(victim, turn(2, 2, 11, 13)), bound: 1200 * time.Millisecond, want: Times{Back: []time.Duration{1100 * time.Millisecond}}},
		{name: "too late", events: join(victim, turn(2, 2, 11, 13)), bound: time.Second, want: Times{Back: []time.Duration{1100 * time.Millisecond}}, slow: true},
		{name: "from the end", events: join(victim, turn(2, 2, 21, 23)), atEnd: true, bound: 2 * time.Second, want: Times{Back: []time.Duration{1100 * time.Millisecond}}},
		{name: "before the end", events: join(victim, turn(2, 2, 12, 13)), atEnd: true, bound: time.Second, want: Times{Back: []time.Duration{0}}},
		{name: "without the time in which the next holder was cut off", events: join(victim, list(granted(5, 2, 20.5, 24.1), held(5, 2, 24.1, 25))), atEnd: true, bound: 2200 * time.Millisecond, want: Times{Back: []time.Duration{2100 * time.Millisecond}}},
		{name: "never, though wanted", events: join(victim, list(refused(2, 12, 12.1))), bound: time.Second, want: Times{}, slow: true},
		{name: "never, and no call met a database", events: join(victim, list(tried(2, 12, 12.1, history.Unavailable))), bound: time.Second, want: Times{Unasked: 1}},
		{name: "never, and waited for past the bound", events: join(victim, list(waiting(tried(2, 10.5, 12, history.GaveUp)))), bound: time.Second, want: Times{}, slow: true},
		{name: "asked for long after the bound", events: join(victim, list(refused(2, 10.5, 10.6)), turn(2, 2, 14, 15)), bound: time.Second, want: Times{Unasked: 1}},
		{name: "waited for past the bound, then granted", events: join(victim, list(waiting(tried(2, 10.5, 12, history.GaveUp))), turn(2, 2, 14, 15)), bound: time.Second, want: Times{Back: []time.Duration{4100 * time.Millisecond}}, slow: true},
		{name: "waited for past the bound by a process that is cut off", events: join(victim, list(waiting(tried(1, 10.5, 12, history.GaveUp)), refused(1, 11.5, 11.6)), turn(2, 2, 14, 15)), bound: time.Second, want: Times{Unasked: 1}},
		{name: "kept and given back", events: join(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 29, 30, 31, history.OK)), turn(2, 2, 32, 33)), bound: time.Second, want: Times{}},
		{name: "given back before", events: join(turn(1, 1, 0, 9), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "of another process", events: join(list(granted(3, 1, 0, 1), held(3, 1, 1, 9)), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "without the time in which all were cut off", events: join(victim, list(granted(2, 2, 20.5, 56), held(2, 2, 56, 57))), atEnd: true, bound: 34 * time.Second, want: Times{Back: []time.Duration{34 * time.Second}}},
		{name: "too late without that time, which counts once", events: join(victim, list(granted(2, 2, 20.5, 56), held(2, 2, 56, 57))), atEnd: true, bound: 33 * time.Second, want: Times{Back: []time.Duration{34 * time.Second}}, slow: true},
		{name: "cut off with all before it asked, and alone after that", events: join(victim, list(granted(6, 2, 52.5, 56), held(6, 2, 56, 57))), atEnd: true, bound: 33 * time.Second, want: Times{Back: []time.Duration{33 * time.Second}}},
		{name: "of several keys the longest", events: join(victim, turn(2, 2, 10.4, 11),
			onKey(8, list(granted(1, 3, 0, 1), held(1, 3, 1, 9))), onKey(8, turn(2, 4, 12.9, 14))),
			bound: 3 * time.Second, want: Times{Back: []time.Duration{500 * time.Millisecond, 3 * time.Second}}},
	}
	cuts := list(fault(freeze, 5, 21, 23), fault(freeze, 3, 20, 99), fault(freeze, 0, 50, 52), fault(freeze, 6, 53, 54), fault(freeze, 7, 51, 52.5))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			facts := with(func(f *Facts) {
				f.Cuts, f.Kills = []int{kill, freeze}, nil
				f.Effects = map[int]Effect{kill: {Back: tt.bound, FromEnd: tt.atEnd}}
			})
			report := Sweep(join(tt.events, cuts, list(fault(kill, 1, 10, 20))), facts)
			if got := *report.Rows[kill]; !slices.Equal(got.Back, tt.want.Back) || got.Unasked != tt.want.Unasked {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if slow := errors.Is(report.Err(), ErrSlow); slow != tt.slow {
				t.Errorf("slow: %v, want %v", slow, tt.slow)
			}
		})
	}
}

// What became of locks does not count for a fault that could not be made.
func TestUnmadeIsNotMeasured(t *testing.T) {
	failed := fault(kill, 1, 10, 20)
	failed.Fault.Unmade = true
	events := append(list(granted(1, 1, 0, 1), told(1, 1, 1, 9, 12)), turn(2, 2, 13, 15)...)
	report := Sweep(append(events, failed), with(func(f *Facts) { f.Effects = map[int]Effect{kill: {Told: true, Back: time.Second}} }))
	if err := report.Err(); len(report.Rows) != 0 || err != nil {
		t.Errorf("got %v and %v, want nothing", report.Rows, err)
	}
}

// How a holder from second 1 learns of a loss to a fault at 10, mended at 12.
func TestTold(t *testing.T) {
	const row = 4
	victim := func(valid, at float64) []history.Event { return list(granted(1, 1, 0, 1), told(1, 1, 1, valid, at)) }
	cut := fault(row, 1, 10, 12)
	second := []time.Duration{time.Second}
	for _, tt := range []struct {
		name   string
		events []history.Event
		want   []time.Duration
	}{
		{"in a second", append(victim(10.9, 11), cut), second},
		{"in three", append(victim(10.9, 13), cut), []time.Duration{3 * time.Second}},
		{"another lost it", append(victim(10.9, 11), fault(row, 2, 10, 12)), nil},
		{"all lost", append(victim(10.9, 11), fault(row, 0, 10, 12)), second},
		{"told after the next of the kind", append(victim(10.9, 15), cut, fault(row, 1, 14, 14.5)), []time.Duration{5 * time.Second}},
		{"frozen twice, and valid in between", append(victim(13, 15), fault(freeze, 1, 10, 12), fault(row, 1, 14, 14.8)), second},
		{"never told", list(granted(1, 1, 0, 1), held(1, 1, 1, 30), cut), nil},
	} {
		report := Sweep(tt.events, with(func(f *Facts) { f.Effects = map[int]Effect{row: {Told: true}, freeze: {Told: true}} }))
		if got := report.Rows[row].Told; !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}
