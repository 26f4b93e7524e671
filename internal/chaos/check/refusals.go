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

// refusals checks that one lock server, which holds r's key for one lock at a
// time, could have refused it (linearizability). Each answer takes effect at
// some moment within its call.
//
// No search for an order is needed. Locks that do not overlap have an order, and
// a refusal changes nothing. So a refusal is wrong exactly if the key was free
// during all of its call, at whatever moments grants and releases took effect:
//
//   - no grant was under way,
//   - no Unlock was,
//   - the last lock granted before was given back. One that was lost, or whose
//     Unlock had no answer, may be in force until the next grant.
//
// A process also refuses, from memory, what one of its own callers holds or waits
// for.
func (s *sweep) refusals(r *record) {
	if !r.plain {
		return
	}
	m := s.memory(r)
	abandoned := s.abandoned(r)
	for _, t := range r.tries {
		if t.Result != history.Held {
			continue
		}
		s.report.Refusals++
		i := sort.Search(len(r.locks), func(i int) bool { return r.locks[i].granted >= t.Begin })
		switch {
		case m.begun[i] <= t.End, m.unlocking.touch(t.Begin, t.End), m.own.of(t.Process).touch(t.Begin, t.End):
		case i > 0 && (!r.locks[i-1].returned() || r.locks[i-1].Ended >= t.Begin):
		case abandoned.explain(r, i, t):
			s.report.Unjudged++
		default:
			s.report.found(ErrIllegal, t.Begin, "%+v", t)
		}
	}
}

// A memory is what can make refusals of a key right.
type memory struct {
	begun     []history.Moment // from when on lock i or a later one may have been granted
	unlocking spans
	own       times // when a process holds the key, as far as it knows, or waits for it
}

func (s *sweep) memory(r *record) *memory {
	m := &memory{begun: make([]history.Moment, len(r.locks)+1)}
	var reach history.Moment // until then an earlier lock was certainly held
	for i, l := range r.locks {
		m.begun[i] = l.asked
		if !l.ghost() {
			m.begun[i] = min(max(l.asked, reach), l.granted)
			reach = max(reach, l.until())
		}
	}
	m.begun[len(r.locks)] = 1<<63 - 1
	var own []history.Fault
	for i, l := range slices.Backward(r.locks) {
		m.begun[i] = min(m.begun[i], m.begun[i+1])
		if l.UnlockBegin != 0 {
			m.unlocking.add(l.UnlockBegin, l.Ended)
		}
		own = append(own, history.Fault{Process: l.Process, Begin: l.granted, End: cmp.Or(l.Told, max(l.until(), l.Ended))})
	}
	for _, t := range r.tries {
		if t.Waits {
			own = append(own, history.Fault{Process: t.Process, Begin: t.Begin, End: t.End})
		}
	}
	m.own = timesOf(own)
	m.unlocking.prepare()
	return m
}

// An abandonedCall ended without a lock, neither granted nor refused. A grant may
// have been made for it, then or later, and is given back at an unknown time.
type abandonedCall struct {
	begin, end history.Moment
	settled    history.Moment // what was on its way has arrived, or never will
	gone       history.Moment // nothing of it is left
}

// abandonedCalls are those of a key, by begin.
type abandonedCalls struct {
	all   []abandonedCall
	reach []history.Moment // the latest gone of the first i+1
}

// abandoned returns the calls for r without a known effect. A call of a process
// that was killed left no line, whether or not it had asked for the key before.
func (s *sweep) abandoned(r *record) *abandonedCalls {
	a := new(abandonedCalls)
	faults := anyOf(s.faults)
	for _, t := range r.tries {
		if t.Result == history.OK || t.Result == history.Held {
			continue
		}
		// What is stuck in a cut or a frozen server arrives when that is mended.
		settled := max(t.End, faults.latest(t.Begin, t.End+settling)) + settling
		a.all = append(a.all, abandonedCall{t.Begin, t.End, settled, settled + history.Moment(s.Lease)})
	}
	for _, f := range s.of(s.Kills) {
		if f.Process != 0 {
			gone := max(f.Begin, f.End) + settling + history.Moment(s.Lingers)
			a.all = append(a.all, abandonedCall{f.Begin - settling, f.Begin - settling, gone, gone})
		}
	}
	slices.SortFunc(a.all, func(x, y abandonedCall) int { return cmp.Compare(x.begin, y.begin) })
	var reach history.Moment
	for _, x := range a.all {
		reach = max(reach, x.gone)
		a.reach = append(a.reach, reach)
	}
	return a
}

// explain reports whether such a call may have had r's key when t was made,
// before which n locks had been granted. It counts until the next grant, unless
// the key was certainly held all the while, and in any case until it has settled.
func (a *abandonedCalls) explain(r *record, n int, t history.Try) bool {
	var freed history.Moment // when the key became free, at the earliest
	if n > 0 {
		freed = r.locks[n-1].until()
	}
	i := sort.Search(len(a.all), func(i int) bool { return a.all[i].begin > t.End }) - 1
	for ; i >= 0 && a.reach[i] >= t.Begin; i-- {
		if x := a.all[i]; x.settled >= t.Begin || x.gone >= t.Begin && x.end >= freed {
			return true
		}
	}
	return false
}

// leaks finds refusals of r that come too late after the last holder's end. The
// bound is coarse and needs no excuse: whatever a call that gave up has left
// behind is gone by then.
func (s *sweep) leaks(r *record) {
	if s.Free == 0 || !r.plain {
		return
	}
	free := s.freed(r)
	m := monopoly{}
	for _, t := range r.tries {
		i := r.after(t.End)
		if t.Result != history.Held || free[i] >= t.Begin || i < len(r.locks) && r.locks[i].asked <= t.End {
			continue
		}
		if i > 0 && s.monopolized(&m, r, i, t) {
			s.report.found(ErrLeaked, t.Begin, "process %d alone is granted key %d since %d: %+v", m.process, r.key, m.since, t)
		}
		since := max(free[i], s.troubled.latest(free[i], t.End))
		if time.Duration(t.Begin-since) > s.Free {
			s.report.found(ErrLeaked, t.Begin, "key %d is free since %d: %+v", r.key, since, t)
		}
	}
}

// inexplicable is how often other processes must be refused a free key before it
// counts as leaked to one process. Calls that give up can cause a few such
// refusals.
const inexplicable = 20

// A monopoly is a time without trouble in which all grants of a key go to one
// process, while others are refused although no lock is held. It shows a session
// that holds the key once more than its process knows.
type monopoly struct {
	process  int
	granted  int // locks of the key that were looked at
	since    history.Moment
	before   int // locks of the key by then
	refusals int
}

// monopolized counts t, a refusal after the first n locks of r had ended. It
// reports whether there are enough.
func (s *sweep) monopolized(m *monopoly, r *record, n int, t history.Try) bool {
	for ; m.granted < n; m.granted++ {
		if process := r.locks[m.granted].Process; process != m.process {
			m.process, m.refusals = process, 0
		}
	}
	if t.Process == m.process {
		return false
	}
	if end := s.troubled.latest(m.since, t.End); m.refusals == 0 || end != 0 {
		m.since, m.before, m.refusals = max(t.Begin, end+1), n, 0
	}
	m.refusals++
	return m.refusals >= inexplicable && n > m.before && time.Duration(t.Begin-m.since) > s.Free
}

// freed returns, for each i, when the first i locks of r had ended as far as any
// holder saw. Before the first lock it is the first call for the key.
//
// A holder that listens writes nothing between its grant and its end. If its
// process was killed meanwhile, the lock may have lasted until then.
func (s *sweep) freed(r *record) []history.Moment {
	free := make([]history.Moment, len(r.locks)+1)
	if len(r.tries) > 0 {
		free[0] = r.tries[0].Begin
	}
	for i, l := range r.locks {
		free[i+1] = max(free[i], l.granted, l.seen(), l.Told, l.UnlockBegin, l.Ended)
		if l.Listens && l.Ended == 0 {
			free[i+1] = max(free[i+1], s.killed[l.Process])
		}
	}
	return free
}
