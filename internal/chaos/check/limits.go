package check

import (
	"cmp"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An OverLimit is a moment at which more places of a limit were certainly held
// than it has.
type OverLimit struct {
	Limit int64
	Lock  int64 // the one too many
	At    history.Moment
	Held  int
	Most  int
}

// limits checks that no limit is exceeded, whether it moves or not. It looks at
// each moment at which a place began to be held.
//
// A call that knew a limit of m has one of the first m places. So of the places
// held at one moment, at most m have calls that knew a limit of m or less. After a
// limit was lowered, places above it that are still held do not count.
//
// Places that count are certainly held: their Err was nil at that moment or
// later. One that is missing here makes the number smaller, so it raises no
// false alarm.
func (s *sweep) limits(rs *records) {
	byLimit := map[int64][]*lock{}
	for _, r := range rs.keys {
		for _, l := range r.locks {
			if l.Limit != 0 && l.Valid >= l.From {
				byLimit[l.Limit] = append(byLimit[l.Limit], l)
			}
		}
	}
	for _, locks := range byLimit {
		slices.SortFunc(locks, func(a, b *lock) int { return cmp.Compare(a.From, b.From) })
		var valid []*lock
		for _, l := range locks {
			valid = slices.DeleteFunc(valid, func(v *lock) bool { return v.seen() < l.From })
			valid = append(valid, l)
			s.atLimit(l, s.certain(valid))
		}
	}
	slices.SortFunc(s.report.OverLimit, func(a, b OverLimit) int { return cmp.Compare(a.At, b.At) })
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
			s.report.OverLimit = append(s.report.OverLimit, OverLimit{l.Limit, l.Lock, l.From, within, p.Most})
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
		if !slices.ContainsFunc(valid, func(w *lock) bool { return v != w && s.excuse(v.grant(), w.grant()) }) {
			certain = append(certain, v)
		}
	}
	return certain
}
