package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// settling is how long after a call, in a system that is not disturbed, what
// the call left on its way to or from the server is done with. It is also the
// longest that a TryLock takes.
const settling = history.Moment(time.Second)

// excuses are why a refusal may be right although no lock of the history is
// held: calls that have or may have the key for a moment without a line that
// says when. They widen what is legal:
//
//   - Another call that waits for the key: a TryLock does not pass those in line.
//   - An Unlock that has not returned: its process answers from memory.
//   - A call that ended without a lock, neither granted nor refused. A grant may
//     have been made for it, then or later, and is given back; how soon is not
//     known, so until the next grant of the key, unless the key was certainly
//     held all the while, and in any case until it has settled.
//   - A call of a process that was killed, which left no line. Any fault with a
//     Process may be that.
//
// A call for several keys that brought one of them must be in the history for
// the others too, as one that gave up: it was in line for them.
type excuses struct {
	record *record
	last   history.Moment // of the history

	inLine    spans // calls that wait, and Unlocks
	stray     spans // calls without effect
	unsettled spans // the same, and unseen calls, until they are settled
}

func (r *record) excuses(rs *records, faults, victims *spans) *excuses {
	x := &excuses{record: r, last: rs.last, unsettled: *victims}
	x.unsettled.sorted = slices.Clone(victims.sorted)
	for _, t := range r.tries {
		if t.Waits {
			x.inLine.add(t.Begin, t.End)
		}
		if t.Result != history.OK && t.Result != history.Held {
			x.stray.add(t.Begin, t.End)
			// What is stuck in a cut or a frozen server arrives when that is mended.
			x.unsettled.add(t.Begin, max(t.End, faults.latest(t.Begin, t.End+settling))+settling)
		}
	}
	for _, l := range r.locks {
		if l.UnlockBegin != 0 {
			x.inLine.add(l.UnlockBegin, max(l.UnlockBegin, l.Ended))
		}
	}
	x.inLine.prepare()
	x.stray.prepare()
	x.unsettled.prepare()
	return x
}

// excuse reports whether t, a refusal, is legal in any state.
func (x *excuses) excuse(t history.Try) bool {
	if x.inLine.touch(t.Begin, t.End) || x.unsettled.touch(t.Begin, t.End) {
		return true
	}
	var freed history.Moment // when the key became free, at the earliest
	if i := x.record.after(t.Begin - 1); i > 0 {
		freed = x.record.locks[i-1].until()
	}
	return x.stray.touch(min(freed, t.Begin), t.End)
}

// disturbances are the faults of a history, and of them those that may have
// killed a process, with the time in which its unseen calls may have had a key.
func disturbances(faults []history.Fault) (all, victims *spans) {
	all, victims = new(spans), new(spans)
	for _, f := range faults {
		end := max(f.Begin, f.End)
		all.add(f.Begin, end)
		if f.Process != 0 {
			victims.add(f.Begin-settling, end+settling)
		}
	}
	all.prepare()
	victims.prepare()
	return all, victims
}

// A spans is a set of intervals, both ends included. It is filled by add, then
// prepared, then asked.
type spans struct {
	sorted []interval
	reach  []history.Moment // the latest end of the first i+1
}

type interval struct{ from, to history.Moment }

func (s *spans) add(from, to history.Moment) { s.sorted = append(s.sorted, interval{from, to}) }

func (s *spans) prepare() {
	slices.SortFunc(s.sorted, func(a, b interval) int { return cmp.Compare(a.from, b.from) })
	s.reach = make([]history.Moment, len(s.sorted))
	var reach history.Moment
	for i, v := range s.sorted {
		reach = max(reach, v.to)
		s.reach[i] = reach
	}
}

// latest is the end of the last interval that touches from to to, 0 if none
// does.
func (s *spans) latest(from, to history.Moment) history.Moment {
	i := sort.Search(len(s.sorted), func(i int) bool { return s.sorted[i].from > to })
	if i == 0 || s.reach[i-1] < from {
		return 0
	}
	return s.reach[i-1]
}

func (s *spans) touch(from, to history.Moment) bool { return s.latest(from, to) != 0 }
