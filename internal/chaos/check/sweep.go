package check

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

type rule struct {
	origin Origin
	bound  time.Duration
}

type sweep struct {
	frozen, starved, cut Times
	slow                 Times
	excuse               func(a, b Grant) bool
	rules                map[int]rule
	goals                map[int]time.Duration
	told                 []int // rows whose Notifications are made
	trouble              *spans
	callTimeout, free    time.Duration // 0: not bounded
	complete             bool
	kills                []int
	report               *Report
}

// Sweep checks what holders saw. For each key:
//
//   - No two locks may have been valid at one moment.
//   - No lock may be valid after its holder was told of its loss.
//   - A holder must be told of a loss before another caller has the key.
//
// Readers of a key may be valid together. Further rules are about calls
// for several keys, limits and waiting: see sets, limits and overtaken.
//
// A Hold counts as valid from From to Valid, both included. One that was never
// seen valid counts at From only.
func Sweep(events []history.Event, opts ...Option) *Report {
	s := &sweep{
		excuse:  func(Grant, Grant) bool { return false },
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
	if s.complete {
		s.report.Malformed = errors.Join(err, rs.incomplete(s.kills))
	}
	killed := rs.killed(s.kills)
	s.count(rs)
	for _, r := range rs.keys {
		s.overlaps(r)
		s.losses(r)
		s.leaks(r, killed)
		s.overtaken(r, rs.lines)
	}
	for _, e := range events {
		if e.Write != nil {
			s.report.Writes[e.Write.Result]++
		}
	}
	s.recoveries(rs)
	s.notifications(rs)
	s.sets(events, rs)
	s.limits(rs)
	s.kinds(events, rs)
	return s.report
}

// overlaps finds the locks of r that began to be valid while an earlier one
// still was. Each counts once, against the one that was valid longest.
func (s *sweep) overlaps(r *record) {
	byFrom := slices.SortedFunc(slices.Values(r.locks), func(a, b *lock) int { return cmp.Compare(a.From, b.From) })
	var valid []*lock // of those before, still so at a From, the longest first
	for _, l := range byFrom {
		if s.unseen(l) {
			s.report.UnseenGrants++
			continue
		}
		valid = slices.DeleteFunc(valid, func(v *lock) bool { return v.seen() < l.From })
		if v := s.rival(l, valid); v != nil {
			s.report.Overlaps = append(s.report.Overlaps, overlap(v, l))
		}
		at, _ := slices.BinarySearchFunc(valid, l, func(a, b *lock) int { return cmp.Compare(b.seen(), a.seen()) })
		valid = slices.Insert(valid, at, l)
	}
}

// rival returns the first lock of valid that l may not overlap. Excused
// overlaps are added to the report.
func (s *sweep) rival(l *lock, valid []*lock) *lock {
	beside := false
	for _, v := range valid {
		if !conflict(v, l) {
			beside = true
			continue
		}
		if !s.excuse(v.grant(), l.grant()) {
			return v
		}
		s.report.Excused = append(s.report.Excused, overlap(v, l))
	}
	if beside {
		s.report.Beside++
	}
	return nil
}

// conflict reports whether two locks of a key exclude each other.
func conflict(a, b *lock) bool { return a.Kind != history.Reader || b.Kind != history.Reader }

func overlap(first, second *lock) Overlap {
	return Overlap{
		Key: first.Key, First: first.Lock, Second: second.Lock, Point: first.Valid < first.From || second.Valid < second.From,
		From: second.From, To: min(first.seen(), second.seen()),
	}
}

// unseen reports whether l was never seen valid because its process could not
// look in time:
//
//   - A process that froze during the grant sets From when it wakes up.
//   - A starved process may be told of the loss at its first look.
func (s *sweep) unseen(l *lock) bool {
	if l.Valid >= l.From {
		return false
	}
	asked := cmp.Or(l.asked, l.From)
	return s.frozen.touch(l.Process, asked, l.From) ||
		s.starved.touch(l.Process, asked, l.From) && l.Told != 0 && l.Told <= l.From+noting
}

// losses checks the locks of r that were lost.
func (s *sweep) losses(r *record) {
	for _, l := range r.locks {
		if l.Told != 0 || l.Unlock == history.Lost {
			s.report.Losses++
		}
		if l.Told == 0 {
			continue
		}
		if l.Valid > l.Told {
			s.report.Resurrected = append(s.report.Resurrected, Resurrection{Key: r.key, Lock: l.Lock, At: l.Valid, By: span(l.Told, l.Valid)})
		}
		next := s.next(r, l)
		switch {
		case next == nil || l.Told <= next.granted || s.excuse(l.grant(), next.grant()):
		case s.couldNotNote(l, next):
			s.report.ExcusedLate++
		default:
			s.report.Late = append(s.report.Late, Late{Key: r.key, Lock: l.Lock, Next: next.Lock, At: l.Told, By: span(next.granted, l.Told)})
		}
	}
}

// couldNotNote reports whether l's holder was told after next was granted
// because its process was frozen or starved.
func (s *sweep) couldNotNote(l, next *lock) bool {
	return s.woke(l) || s.starved.touch(l.Process, next.granted, l.Told) && l.Told <= next.granted+noting
}

// woke reports whether the process of l, a lost lock, was frozen after l was
// seen valid, and noted the loss as soon as it woke up.
func (s *sweep) woke(l *lock) bool {
	end := s.frozen.latest(l.Process, l.seen(), l.Told)
	return end != 0 && l.Told <= end+noting
}

// next returns the first lock of r that was granted after l and excludes it. It
// leaves out a grant whose process was frozen during the call. That grant may be much older,
// even older than l.
func (s *sweep) next(r *record, l *lock) *lock {
	for _, n := range r.locks[r.after(l.From):] {
		if n != l && conflict(l, n) && !s.frozen.touch(n.Process, cmp.Or(n.asked, n.granted), n.granted) {
			return n
		}
	}
	return nil
}

func span(from, to history.Moment) time.Duration { return time.Duration(to - from) }
