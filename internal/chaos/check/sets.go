package check

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// An InPart is a call that was to bring all of its locks or none.
type InPart struct {
	Process int
	Call    int64
	Wanted  int
	Granted int
	Apart   bool // it brought all, and they were not held at the same time
}

// sets checks calls that want several keys, or places of several limits:
//
//   - Each of their lines has OK, or none has.
//   - Locks that were not lost were held at the same time.
//
// A process that was killed may leave only some of the lines of its last call.
func (s *sweep) sets(events []history.Event, rs *records) {
	calls := map[int64][]*history.Try{}
	for _, e := range events {
		if e.Try != nil && e.Try.All > 0 {
			calls[e.Try.Call] = append(calls[e.Try.Call], e.Try)
		}
	}
	if len(calls) == 0 {
		return
	}
	locks := map[int64]*lock{}
	for _, r := range rs.keys {
		for _, l := range r.locks {
			locks[l.Lock] = l
		}
	}
	killed := rs.killed(s.kills)
	for _, number := range sortedKeys(calls) {
		lines := calls[number]
		found := InPart{Process: lines[0].Process, Call: number, Wanted: lines[0].All}
		granted := make([]*lock, 0, len(lines))
		for _, t := range lines {
			if t.Result == history.OK {
				granted = append(granted, locks[t.Lock])
			}
		}
		found.Granted = len(granted)
		complete := found.Granted == found.Wanted || len(lines) == found.Granted && (!s.complete || killed[found.Process] != 0)
		switch {
		case found.Granted == 0:
			continue
		case !complete:
		case apart(granted):
			found.Apart = true
		default:
			continue
		}
		s.report.InPart = append(s.report.InPart, found)
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

func sortedKeys(calls map[int64][]*history.Try) (numbers []int64) {
	for n := range calls {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}
