package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// settling is how long a call's traces can stay on their way to or from the
// server, in an undisturbed system. It is also the longest that a TryLock
// takes.
const settling = history.Moment(time.Second)

// excuses are the reasons why a refusal may be right although no lock in the
// history is held. Some calls have the key for a moment, and no line says when.
// Each of them makes a refusal legal:
//
//   - Another call waits for the key. A TryLock does not overtake waiting calls.
//   - An Unlock has not returned. Its process answers from memory.
//   - A call ended without a lock, neither granted nor refused. A grant may have
//     been made for it, then or later, and is given back at an unknown time. So it
//     counts until the next grant, unless the key was certainly held all the
//     while, and in any case until it has settled.
//   - A call of a process that was killed left no line. Any fault with a Process
//     may be such a kill.
//
// A call for several keys waited for all of them and brought one. So the
// history must have it for the others too, as a call that gave up.
type excuses struct {
	record *record
	last   history.Moment // of the history

	inLine         spans // calls that wait, and Unlocks
	known          Times // of each process: its own calls that wait, and all Unlocks
	unsettled      spans // calls without effect, and unseen ones, until they are settled
	abandonedCalls abandonedCalls
}

func (r *record) excuses(rs *records, t Params, faults *spans) *excuses {
	x := &excuses{record: r, last: rs.last}
	x.unsettled.sorted = unseen(rs, t)
	var known []history.Fault
	for _, y := range r.tries {
		if y.Waits {
			x.inLine.add(y.Begin, y.End)
			known = append(known, history.Fault{Process: y.Process, Begin: y.Begin, End: y.End})
		}
		if y.Result != history.OK && y.Result != history.Held {
			// What is stuck in a cut or a frozen server arrives when that is mended.
			settled := max(y.End, faults.latest(y.Begin, y.End+settling)) + settling
			x.unsettled.add(y.Begin, settled)
			x.abandonedCalls.all = append(x.abandonedCalls.all, abandonedCall{y.Begin, y.End, settled + history.Moment(t.Lease)})
		}
	}
	for _, l := range r.locks {
		if l.UnlockBegin != 0 {
			x.inLine.add(l.UnlockBegin, max(l.UnlockBegin, l.Ended))
			known = append(known, history.Fault{Begin: l.UnlockBegin, End: l.Ended})
		}
	}
	x.known = timesOf(known)
	x.inLine.prepare()
	x.unsettled.prepare()
	x.abandonedCalls.prepare()
	return x
}

// explain reports whether the history shows why t, a refusal, is legal. The
// reason is an Unlock that had not returned, or a call of its own process that
// waited. That is a judgement, unlike an excuse by what may have happened.
func (x *excuses) explain(t history.Try) bool { return x.known.touch(t.Process, t.Begin, t.End) }

// excuse reports whether t, a refusal, is legal in any state.
func (x *excuses) excuse(t history.Try) bool {
	if x.inLine.touch(t.Begin, t.End) || x.unsettled.touch(t.Begin, t.End) {
		return true
	}
	var freed history.Moment // when the key became free, at the earliest
	if i := x.record.after(t.Begin - 1); i > 0 {
		freed = x.record.locks[i-1].until()
	}
	return x.abandonedCalls.since(min(freed, t.Begin), t)
}

// disturbances are the times of all faults.
func disturbances(faults []history.Fault) *spans {
	all := new(spans)
	for _, f := range faults {
		all.add(f.Begin, max(f.Begin, f.End))
	}
	all.prepare()
	return all
}

// unseen returns when calls of killed processes may have had r's key without a
// line in the history. A process may have been killed in its first call for the
// key, so it does not matter whether it had asked for the key before.
func unseen(rs *records, t Params) (all []interval) {
	for _, f := range rs.faults {
		if f.Process != 0 && slices.Contains(t.Kills, f.Row) {
			all = append(all, interval{f.Begin - settling, max(f.Begin, f.End) + settling + history.Moment(t.Lingers)})
		}
	}
	return all
}

// An abandonedCall had no effect. After gone, nothing of it is left.
type abandonedCall struct{ begin, end, gone history.Moment }

// abandonedCalls are added, then prepared, then queried.
type abandonedCalls struct {
	all   []abandonedCall  // by begin
	reach []history.Moment // the latest gone of the first i+1
}

func (s *abandonedCalls) prepare() {
	slices.SortFunc(s.all, func(a, b abandonedCall) int { return cmp.Compare(a.begin, b.begin) })
	var reach history.Moment
	for _, y := range s.all {
		reach = max(reach, y.gone)
		s.reach = append(s.reach, reach)
	}
}

// since reports whether an abandoned call that had not ended when the key
// became free may have had the key when t was made.
func (s *abandonedCalls) since(freed history.Moment, t history.Try) bool {
	i := sort.Search(len(s.all), func(i int) bool { return s.all[i].begin > t.End }) - 1
	for ; i >= 0 && s.reach[i] >= t.Begin; i-- {
		if s.all[i].end >= freed && s.all[i].gone >= t.Begin {
			return true
		}
	}
	return false
}
