package check

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// of makes the lines of events those of a call of kind.
func of(kind history.Kind, events []history.Event) []history.Event {
	for _, e := range events {
		switch {
		case e.Try != nil:
			e.Try.Kind = kind
		case e.Hold != nil:
			e.Hold.Kind = kind
		}
	}
	return events
}

// A judged is a history that is right, or how it is wrong.
type judged struct {
	name   string
	events []history.Event
	want   error // nil: it is right
}

func judge(t *testing.T, tests []judged, change func(*Facts)) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if err := Sweep(tt.events, with(change)).Err(); tt.want == nil && err != nil || !errors.Is(err, tt.want) {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// Readers share their key, and no other kind does.
func TestReaders(t *testing.T) {
	reader := func(process int, lock int64, begin, end float64) []history.Event {
		return of(history.Reader, turn(process, lock, begin, end))
	}
	lost := of(history.Reader, list(granted(1, 1, 1, 1.1), told(1, 1, 1.1, 3, 9)))
	judge(t, []judged{
		{"readers beside each other", join(reader(1, 1, 1, 5), reader(2, 2, 2, 6), reader(1, 3, 3, 9)), nil},
		{"a reader beside an exclusive holder", join(turn(1, 1, 1, 5), reader(2, 2, 2, 6)), ErrOverlap},
		{"an exclusive holder beside a reader", join(reader(1, 1, 1, 5), turn(2, 2, 2, 6)), ErrOverlap},
		{"an exclusive holder after readers", join(reader(1, 1, 1, 5), reader(2, 2, 2, 6), turn(3, 3, 5.5, 9)[1:], reader(1, 4, 10, 11)), ErrOverlap},
		{"one after the other", join(reader(1, 1, 1, 5), reader(2, 2, 2, 6), turn(3, 3, 7, 9), reader(1, 4, 10, 11)), nil},
		{"a reader is told of its loss after the next reader", join(lost, reader(2, 2, 5, 6)), nil},
		{"a reader is told of its loss after the next exclusive grant", join(lost, turn(2, 2, 5, 6)), ErrToldLate},
	}, func(*Facts) {})
	if r := Sweep(join(reader(1, 1, 1, 5), reader(2, 2, 2, 6), reader(1, 3, 7, 9)), tabled); r.Beside != 1 {
		t.Errorf("%d readers beside readers, want 1", r.Beside)
	}
}

// setOf makes events the lines of one call for n keys, and gives each its key.
func setOf(number int64, n int, lines ...[]history.Event) (all []history.Event) {
	for i, line := range lines {
		for _, e := range of(history.Set, onKey(int64(number*100)+int64(i), line)) {
			if e.Try != nil {
				e.Try.Call, e.Try.All = number, n
			}
			all = append(all, e)
		}
	}
	return all
}

// A set is granted as a whole, for the same time.
func TestSets(t *testing.T) {
	gaveUp := list(tried(1, 1, 1.1, history.GaveUp))
	whole := setOf(1, 3, turn(1, 1, 1, 5), turn(1, 2, 1, 4), turn(1, 3, 1, 5))
	short := setOf(1, 3, turn(1, 1, 1, 5), turn(1, 2, 1, 4))
	judge(t, []judged{
		{"a set", whole, nil},
		{"nothing of a set", setOf(1, 2, list(refused(1, 1, 1.1)), list(refused(1, 1, 1.1))), nil},
		{"a set without one key", setOf(1, 2, turn(1, 1, 1, 5), gaveUp), ErrSetInPart},
		{"a set without a line", short, ErrSetInPart},
		{"a set of a process that was killed meanwhile", join(short, list(fault(kill, 1, 5, 5))), nil},
		{"a key in two sets at once", join(whole, onKey(101, turn(2, 4, 2, 6))), ErrOverlap},
		{"a set whose keys were held one after the other", setOf(1, 2,
			list(granted(1, 1, 1, 1.1), unlocked(1, 1, 1.1, 1.2, 1.3, 1.4, history.OK)),
			list(granted(1, 2, 1, 1.1), unlocked(1, 2, 2, 3, 4, 5, history.OK))), ErrSetInPart},
		{"a set that was lost in between", setOf(1, 2,
			list(granted(1, 1, 1, 1.1), told(1, 1, 1.1, 1.2, 1.3)),
			list(granted(1, 2, 1, 1.1), told(1, 2, 2, 2, 2))), nil},
	}, func(f *Facts) { f.Complete = true })
}

// place makes events those of a place of limit 1, of which there are most.
func place(slot int64, most int, events []history.Event) []history.Event {
	limited := history.Limited{Limit: 1, Most: most}
	for _, e := range of(history.Limit, onKey(slot, events)) {
		switch {
		case e.Try != nil:
			e.Try.Limited = limited
		case e.Hold != nil:
			e.Hold.Limited = limited
		}
	}
	return events
}

// blind is a turn whose holder looks at its lock once, at its beginning.
func blind(process int, lock int64, begin, end float64) []history.Event {
	events := turn(process, lock, begin, end)
	events[1].Hold.Valid = events[1].Hold.From
	return events
}

// A limit that goes down counts among the calls that know it.
func TestLimits(t *testing.T) {
	two := join(place(1, 2, turn(1, 1, 1, 9)), place(2, 2, turn(2, 2, 2, 6)))
	judge(t, []judged{
		{"as many as the limit", two, nil},
		{"one more", join(two, place(3, 2, turn(3, 3, 3, 5))), ErrOverLimit},
		{"the limit went down, and two are held", join(two, place(3, 1, turn(3, 3, 3, 5))), ErrOverLimit},
		{"one too many, not looked at between its beginning and its end", join(place(1, 1, blind(1, 1, 1, 9)), place(2, 1, blind(2, 2, 3, 8))), ErrOverLimit},
		{"the limit went down, and one is held", join(two, place(3, 1, turn(3, 3, 7, 8))), nil},
		{"the limit went down, and one more is held than the old one", join(two, place(3, 1, turn(3, 3, 3, 8)), place(4, 1, turn(4, 4, 4, 5))), ErrOverLimit},
		{"the limit went down, and two know that", join(place(1, 3, turn(1, 1, 1, 9)), place(2, 1, turn(2, 2, 2, 6)), place(3, 1, turn(3, 3, 3, 5))), ErrOverLimit},
		{"the limit went down during a call that was admitted before", join(
			place(1, 1, list(granted(1, 1, 4, 4.1), unlocked(1, 1, 5, 7, 8, 9, history.OK))),
			place(2, 2, list(granted(2, 2, 1, 4.5), unlocked(2, 2, 4.6, 7, 8, 9, history.OK)))), nil},
		{"a place that was lost does not count", join(
			place(1, 1, list(granted(1, 1, 1, 1.1), told(1, 1, 1.1, 3, 4))), place(2, 1, turn(2, 2, 5, 6))), nil},
	}, func(*Facts) {})
	if r := Sweep(two, tabled); r.Full != 1 {
		t.Errorf("%d admissions took the last place, want 1", r.Full)
	}
}

// A place that a server has freed, and its holder does not know yet, is left out.
func TestLimitsExcuse(t *testing.T) {
	two := join(place(1, 1, turn(1, 1, 1, 9)), place(2, 1, turn(2, 2, 2, 6)))
	excuse := func(a, b Grant) bool { return a.Lock == 1 || b.Lock == 1 }
	judge(t, []judged{{"excused", two, nil}}, func(f *Facts) { f.Excuse = excuse })
	judge(t, []judged{{"not excused", two, ErrOverLimit}}, func(*Facts) {})
}

// wait is a call of process 1 that waits.
func wait(begin, end float64, result history.Result, lock int64) []history.Event {
	e := waiting(tried(1, begin, end, result))
	e.Try.Lock = lock
	if lock == 0 {
		return list(e)
	}
	return list(e, unlocked(1, lock, end, end, end, end, history.OK))
}

// A request that waits ends at its deadline.
func TestDeadline(t *testing.T) {
	until := func(deadline float64, events []history.Event) []history.Event {
		events[0].Try.Until = sec(deadline)
		return events
	}
	judge(t, []judged{
		{"in time", until(5, wait(1, 5.1, history.GaveUp, 0)), nil},
		{"much later", until(5, wait(1, 9, history.GaveUp, 0)), ErrLong},
		{"served much later", until(5, wait(1, 9, history.OK, 1)), ErrLong},
		{"later, and frozen meanwhile", join(until(15, wait(11, 19, history.GaveUp, 0)), list(fault(2, 1, 15, 19))), nil},
		{"without a deadline", wait(1, 9, history.GaveUp, 0), nil},
	}, func(f *Facts) { f.CallTimeout = time.Second })
}
