package check

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

const freeze = 2 // row of the fault table

// Each rule has a history that breaks it and one beside it that does not.
func TestSweep(t *testing.T) {
	frozen := func(process int, begin, end float64) []Option {
		return []Option{WithFrozen(FrozenIn(list(fault(freeze, process, begin, end)), freeze))}
	}
	tests := []struct {
		name   string
		events []history.Event
		opts   []Option
		want   error // nil: the promise held
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
		{name: "never, though wanted", events: join(victim, list(refused(2, 12, 12.1))), bound: time.Second, want: Recovery{Never: 1}, slow: true},
		{name: "wanted within the bound only", events: join(victim, list(refused(2, 10.5, 10.6))), bound: time.Second, want: Recovery{Unasked: 1}},
		{name: "kept and given back", events: join(list(granted(1, 1, 0, 1), unlocked(1, 1, 1, 29, 30, 31, history.OK)), turn(2, 2, 32, 33)), bound: time.Second, want: Recovery{Survived: 1}},
		{name: "granted at that moment", events: join(list(granted(1, 1, 9, 10), held(1, 1, 10, 10)), turn(2, 2, 11, 13)), bound: 2 * time.Second, want: Recovery{Keys: 1, Max: 1100 * time.Millisecond}},
		{name: "given back before", events: join(turn(1, 1, 0, 9), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "of another process", events: join(list(granted(3, 1, 0, 1), held(3, 1, 1, 9)), turn(2, 2, 32, 33)), bound: time.Second},
		{name: "a lock that ended unseen long ago", events: join(victim, turn(2, 2, 5, 7), turn(2, 3, 32, 33)), bound: time.Second},
		{name: "of several keys the longest", events: join(victim, turn(2, 2, 10.4, 11),
			onKey(8, list(granted(1, 3, 0, 1), held(1, 3, 1, 9))), onKey(8, turn(2, 4, 12.9, 14))),
			bound: 3 * time.Second, want: Recovery{Keys: 2, Max: 3 * time.Second, P50: 500 * time.Millisecond}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			report := Sweep(append(tt.events, fault(kill, 1, 10, 20)), WithRecovery(kill, tt.origin, tt.bound))
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

func TestPercentile(t *testing.T) {
	var sorted []time.Duration
	for i := range 200 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for _, tt := range []struct {
		p    float64
		n    int
		want time.Duration
	}{{0.5, 200, 100}, {0.99, 200, 198}, {0.99, 1, 1}, {0.5, 1, 1}, {0.5, 2, 1}, {0.99, 2, 2}} {
		if got := percentile(sorted[:tt.n], tt.p); got != tt.want {
			t.Errorf("p%v of 1 to %d is %v, want %v", tt.p*100, tt.n, int(got), int(tt.want))
		}
	}
}

func TestCounts(t *testing.T) {
	events := join(turn(1, 1, 0, 3), list(
		refused(2, 0.05, 0.2), // beside the grant
		refused(1, 1, 1.2),    // beside a call of its own process
		refused(1, 1.1, 1.3),
		refused(3, 2.95, 3), // beside the Unlock
		tried(2, 5, 6, history.Unavailable),
		wrote(1, history.OK), wrote(1, history.Fenced),
		fault(kill, 1, 8, 9), fault(freeze, 1, 9, 10), fault(kill, 2, 10, 11),
	), onKey(8, list(granted(2, 2, 0, 0.5), told(2, 2, 1, 2, 3))))
	r := Sweep(events)
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"keys", r.Keys, 2},
		{"operations", r.Operations, 9},
		{"contended", r.Contended, 4},
		{"locks", r.Locks, 2},
		{"losses", r.Losses, 1},
		{"refusals", r.Tries[history.Held], 4},
		{"grants", r.Tries[history.OK], 2},
		{"unavailable", r.Tries[history.Unavailable], 1},
		{"unlocks", r.Unlocks[history.OK], 1},
		{"lost unlocks", r.Unlocks[history.Lost], 1},
		{"writes", r.Writes[history.Fenced], 1},
		{"kills", r.Faults[kill], 2},
		{"freezes", r.Faults[freeze], 1},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	for _, line := range []string{"contended", "valid at once", "tries held", "faults of row 1"} {
		if !strings.Contains(r.String(), line) {
			t.Errorf("the table has no line %q:\n%s", line, r)
		}
	}
}

// The fast count of contended calls against the obvious one.
func TestContended(t *testing.T) {
	for seed := range uint64(300) {
		calls := randomCalls(seed)
		want := 0
		for i, a := range calls {
			for j, b := range calls {
				if i != j && a.process != b.process && a.begin <= b.end && b.begin <= a.end {
					want++
					break
				}
			}
		}
		got := 0
		for _, hit := range contended(calls) {
			if hit {
				got++
			}
		}
		if got != want {
			t.Fatalf("seed %d: %d, want %d", seed, got, want)
		}
	}
}
