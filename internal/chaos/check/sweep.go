package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An Option changes what [Sweep] looks at.
type Option func(*sweep)

// A Frozen reports whether a process stood still at some moment between two.
type Frozen func(process int, from, to history.Moment) bool

// FrozenIn is the Frozen that holds while a fault of one of rows is in force on
// the process, or on all.
func FrozenIn(events []history.Event, rows ...int) Frozen {
	var faults []history.Fault
	for _, e := range events {
		if e.Fault != nil && slices.Contains(rows, e.Fault.Row) {
			faults = append(faults, *e.Fault)
		}
	}
	return func(process int, from, to history.Moment) bool {
		return slices.ContainsFunc(faults, func(f history.Fault) bool {
			return (f.Process == 0 || f.Process == process) && f.Begin <= to && max(f.Begin, f.End) >= from
		})
	}
}

// WithFrozen leaves out what a process cannot do in time while it is frozen: to
// note that it was told of a loss, or that it was granted a lock. What it
// believes when it wakes up is checked all the same.
func WithFrozen(frozen Frozen) Option {
	return func(s *sweep) { s.frozen = frozen }
}

// An Origin is the moment of a fault from which recovery is counted.
type Origin int

// The origins.
const (
	FromBegin Origin = iota
	FromEnd          // a key that came back before counts as recovered at once
)

// WithRecovery measures, for each fault of row, how long it takes until the keys
// that its victim held are granted again, and holds the longest against bound.
func WithRecovery(row int, origin Origin, bound time.Duration) Option {
	return func(s *sweep) { s.rules[row] = rule{origin: origin, bound: bound} }
}

// WithGoal counts the keys that come back within goal, by the measure of the row's
// WithRecovery. To miss it is no violation.
func WithGoal(row int, goal time.Duration) Option {
	return func(s *sweep) { s.goals[row] = goal }
}

type rule struct {
	origin Origin
	bound  time.Duration
}

type sweep struct {
	frozen  Frozen
	rules   map[int]rule
	goals   map[int]time.Duration
	told    []int // rows whose Tellings are made
	trouble *spans
	report  *Report
}

// Sweep checks what holders believed. For each key no two locks may have been
// valid at one moment, no lock may be valid after its loss was told, and a
// holder must be told of a loss before somebody else has the key.
//
// A Hold counts as valid from From to Valid, both included; one that was never
// seen valid counts at From only.
func Sweep(events []history.Event, opts ...Option) *Report {
	s := &sweep{
		frozen:  func(int, history.Moment, history.Moment) bool { return false },
		rules:   map[int]rule{},
		goals:   map[int]time.Duration{},
		trouble: new(spans),
		report:  newReport(),
	}
	for _, opt := range opts {
		opt(s)
	}
	s.trouble.prepare()
	rs, err := index(events)
	s.report.Malformed = err
	for _, r := range rs.keys {
		s.report.count(r, s.trouble)
		s.overlaps(r)
		s.losses(r)
	}
	for _, e := range events {
		if e.Write != nil {
			s.report.Writes[e.Write.Result]++
		}
	}
	s.recoveries(rs)
	s.tellings(rs)
	return s.report
}

// overlaps finds the locks of r that began to be valid while an earlier one
// still was. Each counts once.
func (s *sweep) overlaps(r *record) {
	byFrom := slices.SortedFunc(slices.Values(r.locks), func(a, b *lock) int { return cmp.Compare(a.From, b.From) })
	var longest *lock // of those before, the one that was valid longest
	for _, l := range byFrom {
		point := l.Valid < l.From
		// A process that froze with a grant on its way says From when it wakes up.
		if point && s.frozen(l.Process, cmp.Or(l.asked, l.From), l.From) {
			s.report.Excused++
			continue
		}
		if longest != nil && l.From <= longest.seen() {
			s.report.Overlaps = append(s.report.Overlaps, Overlap{
				Key: r.key, First: longest.Lock, Second: l.Lock, Point: point || longest.Valid < longest.From,
				From: l.From, To: min(l.seen(), longest.seen()),
			})
		}
		if longest == nil || l.seen() > longest.seen() {
			longest = l
		}
	}
}

// losses checks the locks of r that were lost.
func (s *sweep) losses(r *record) {
	for _, l := range r.locks {
		if l.Told == 0 {
			continue
		}
		s.report.Losses++
		if l.Valid > l.Told {
			s.report.Resurrected = append(s.report.Resurrected, Resurrection{Key: r.key, Lock: l.Lock, By: span(l.Told, l.Valid)})
		}
		next := s.next(r, l)
		switch {
		case next == nil || l.Told <= next.granted:
		case s.frozen(l.Process, l.seen(), l.Told):
			s.report.Excused++
		default:
			s.report.Late = append(s.report.Late, Late{Key: r.key, Lock: l.Lock, Next: next.Lock, By: span(next.granted, l.Told)})
		}
	}
}

// next is the first lock of r that was granted after l. A grant whose process was
// frozen within the call is left out: it may have been made long before, even
// before l's.
func (s *sweep) next(r *record, l *lock) *lock {
	for _, n := range r.locks[r.after(l.From):] {
		if n != l && !s.frozen(n.Process, cmp.Or(n.asked, n.granted), n.granted) {
			return n
		}
	}
	return nil
}

func span(from, to history.Moment) time.Duration { return time.Duration(to - from) }
