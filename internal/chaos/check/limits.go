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
// Each place was admitted under the limit that its call knew, and is one of so
// many. So the number of places is at most the highest Most of those that are
// held. After a limit was lowered, places above it that are still held do not
// count against it: until they end, the old limit is the highest.
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

// atLimit compares places that are held when l begins to be with their limit.
func (s *sweep) atLimit(l *lock, places []*lock) {
	most := 0
	for _, v := range places {
		most = max(most, v.Most)
	}
	switch {
	case len(places) > most:
		s.report.OverLimit = append(s.report.OverLimit, OverLimit{l.Limit, l.Lock, l.From, len(places), most})
	case len(places) == most:
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
