package check

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// sets checks calls that want several keys, or places of several limits:
//
//   - Each of their lines has OK, or none has.
//   - Locks that were not lost were held at the same time.
//
// A process that was killed may leave only some of the lines of its last call.
func (s *sweep) sets() {
	calls := map[int64][]history.Try{}
	for _, r := range s.keys {
		for _, t := range r.tries {
			if t.All > 0 {
				calls[t.Call] = append(calls[t.Call], t)
			}
		}
	}
	for _, lines := range calls {
		var granted []*lock
		for _, t := range lines {
			if t.Result == history.OK {
				granted = append(granted, s.locks[t.Lock])
			}
		}
		n, first := len(granted), lines[0]
		cutShort := len(lines) == n && (!s.Complete || s.killed[first.Process] != 0)
		switch {
		case n == 0:
		case n != first.All && !cutShort:
			s.report.found(ErrSetInPart, first.Begin, "%d of %d: %+v", n, first.All, first)
		case apart(granted):
			s.report.found(ErrSetInPart, first.Begin, "not at the same time: %+v", first)
		}
	}
}

// apart reports whether one of locks had been given back before another began to
// be held. Locks that were lost, or whose end is not known, show nothing.
func apart(locks []*lock) bool {
	from, until := locks[0].From, locks[0].until()
	for _, l := range locks {
		if !l.returned() || l.Told != 0 {
			return false
		}
		from, until = max(from, l.From), min(until, l.until())
	}
	return from > until
}

// limits checks that no limit is exceeded, whether it moves or not. It looks at
// each moment at which a place began to be held.
//
// A call that knew a limit of m has one of the first m places. So of the places
// held at one moment, at most m have calls that knew a limit of m or less. After a
// limit was lowered, places above it that are still held do not count.
//
// Places that count are certainly held: their Err was nil at that moment or
// later, or their Unlock began later. One that is missing here makes the number
// smaller, so it raises no false alarm.
func (s *sweep) limits() {
	byLimit := map[int64][]*lock{}
	for _, l := range s.locks {
		if l.Limit != 0 && l.Valid >= l.From {
			byLimit[l.Limit] = append(byLimit[l.Limit], l)
		}
	}
	for _, locks := range byLimit {
		slices.SortFunc(locks, func(a, b *lock) int { return cmp.Compare(a.From, b.From) })
		var valid []*lock
		for _, l := range locks {
			valid = slices.DeleteFunc(valid, func(v *lock) bool { return v.until() < l.From })
			valid = append(valid, l)
			s.atLimit(l, s.certain(valid))
		}
	}
}

// atLimit compares places that are held when l begins to be with the limits that
// their calls knew.
func (s *sweep) atLimit(l *lock, places []*lock) {
	highest := 0
	for _, p := range places {
		highest = max(highest, p.Most)
		within := 0
		for _, v := range places {
			if v.Most <= p.Most {
				within++
			}
		}
		if within > p.Most {
			s.report.found(ErrOverLimit, l.From, "%d places of %d, with %+v", within, p.Most, l.Hold)
			return
		}
	}
	if len(places) == highest {
		s.report.Full++
	}
}

// certain returns the locks of valid that are not excused against another one.
func (s *sweep) certain(valid []*lock) (certain []*lock) {
	for _, v := range valid {
		if !slices.ContainsFunc(valid, func(w *lock) bool { return v != w && s.Excuse(v.grant(), w.grant()) }) {
			certain = append(certain, v)
		}
	}
	return certain
}
