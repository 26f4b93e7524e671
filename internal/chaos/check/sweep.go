package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// noting is how long a process may take to write down an event after it wakes
// up.
const noting = history.Moment(500 * time.Millisecond)

// A sweep is a check under way.
type sweep struct {
	Facts
	report *Report

	keys   []*record
	locks  map[int64]*lock // by number
	faults []history.Fault // by Begin

	killed            map[int]history.Moment // processes, and by when
	frozen, cut, slow times
	troubled          *spans // whoever is in trouble
}

// Sweep checks what holders and callers saw, and what they left. For each key:
//
//   - No two locks may have been valid at one moment. A lock is certainly valid
//     from its grant until it was last seen valid, or until its Unlock began.
//   - No lock may be valid after its holder was told of its loss.
//   - A holder must be told of a loss before another caller has the key.
//   - A free key is not refused for long.
//
// Readers of a key may be valid together. Further rules are about calls for
// several keys, limits, waiting and time, about versions, and about the database.
func Sweep(events []history.Event, facts Facts) *Report {
	s := newSweep(events, facts)
	if s.Complete {
		s.complete()
	}
	s.calls()
	for _, r := range s.keys {
		s.overlaps(r)
		s.losses(r)
		s.leaks(r)
	}
	s.measure()
	s.sets()
	s.limits()
	s.versions(events)
	if s.Gathered {
		tokens(s.report, s.Stored, s.TokensRise)
		writes(s.report, events, s.Stored)
	}
	return s.report
}

// newSweep sorts events for a check.
func newSweep(events []history.Event, facts Facts) *sweep {
	s := &sweep{Facts: facts, report: &Report{
		Calls:   map[history.Kind]map[history.Result]int{},
		Unlocks: map[history.Result]int{},
		Writes:  map[history.Result]int{},
		Rows:    map[int]*Times{},

		Versions: map[string]*Share{},
	}}
	if s.Excuse == nil {
		s.Excuse = func(Grant, Grant) bool { return false }
	}
	s.index(events)
	s.killed = map[int]history.Moment{}
	for _, f := range s.of(s.Kills) {
		if f.Process != 0 { // 0: it could not be made
			s.killed[f.Process] = max(f.Begin, f.End)
		}
	}
	s.frozen, s.cut, s.slow = timesOf(s.of(s.Freezes)), timesOf(s.of(s.Cuts)), timesOf(s.of(s.Slows))
	s.troubled = anyOf(s.Trouble)
	return s
}

// overlaps finds the locks of r that were granted while an earlier one was
// certainly held. Each counts once. A ghost proves nothing.
func (s *sweep) overlaps(r *record) {
	var valid []*lock
	for _, l := range r.locks {
		if l.ghost() {
			continue
		}
		valid = slices.DeleteFunc(valid, func(v *lock) bool { return v.until() <= l.granted })
		beside, rival := false, false
		for _, v := range valid {
			o := Overlap{r.key, v.Lock, l.Lock, l.granted, min(v.until(), l.until())}
			switch {
			case !conflict(v, l):
				beside = true
			case s.Excuse(v.grant(), l.grant()):
				s.report.Excused = append(s.report.Excused, o)
			case !rival:
				rival = true
				s.report.Overlaps = append(s.report.Overlaps, o)
				s.report.found(ErrOverlap, o.From, "%+v", o)
			}
		}
		if beside && !rival {
			s.report.Beside++
		}
		valid = append(valid, l)
	}
}

// conflict reports whether two locks of a key exclude each other.
func conflict(a, b *lock) bool { return a.Kind != history.Reader || b.Kind != history.Reader }

// losses checks the locks of r that were lost.
func (s *sweep) losses(r *record) {
	for _, l := range r.locks {
		s.report.Locks++
		if l.lost() {
			s.report.Losses++
		}
		if l.Told == 0 {
			continue
		}
		if l.Valid > l.Told || l.returned() && l.UnlockBegin > l.Told {
			s.report.found(ErrResurrected, l.Told, "%+v", l.Hold)
		}
		next := s.next(r, l)
		switch {
		case next == nil || l.Told <= next.granted || s.Excuse(l.grant(), next.grant()):
		case s.woke(l):
			s.report.ToldAwake++
		default:
			s.report.found(ErrToldLate, l.Told, "lock %d of process %d, %v after the grant of %d", l.Lock, l.Process, time.Duration(l.Told-next.granted), next.Lock)
		}
	}
}

// woke reports whether the process of l, a lost lock, was frozen after l was
// seen valid, and noted the loss as soon as it woke up.
func (s *sweep) woke(l *lock) bool {
	end := s.frozen.of(l.Process).latest(l.seen(), l.Told)
	return end != 0 && l.Told <= end+noting
}

// next returns the first lock of r that was granted after l and excludes it. It
// leaves out a grant whose process was frozen during the call. That grant may be
// much older, even older than l.
func (s *sweep) next(r *record, l *lock) *lock {
	for _, n := range r.locks[r.after(l.From):] {
		if n != l && conflict(l, n) && !s.frozen.of(n.Process).touch(cmp.Or(n.asked, n.granted), n.granted) {
			return n
		}
	}
	return nil
}
