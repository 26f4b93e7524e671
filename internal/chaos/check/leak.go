package check

import "github.com/latchkey-go/latchkey/internal/chaos/history"

// A Leak is a key that was refused for too long without a holder, or while only
// one process was granted it.
type Leak struct {
	Key      int64
	Free, At history.Moment // since when no lock was held and there was no trouble; the first such refusal
	Refusals int
	Process  int // that was granted the key meanwhile; 0: none was
}

// leaks finds the refusals of r that come too late after the last holder's end.
// The bound is coarse and needs no excuse: whatever a call that gave up has
// left behind is gone by then.
//
// The keys of sets and limits are left out. A call that fails has some of them
// for a moment, again and again. What is left of them shows when all callers
// have ended.
func (s *sweep) leaks(r *record, killed map[int]history.Moment) {
	if s.free == 0 || !r.plain {
		return
	}
	free := r.freedBy(killed)
	last := -1 // index in free of the leak that was found last
	m := monopoly{sweep: s, key: r.key}
	for _, t := range r.tries {
		if t.Result != history.Held {
			continue
		}
		i := r.after(t.End)
		if i < len(r.locks) && r.locks[i].asked <= t.End { // the next holder may have it already
			continue
		}
		if free[i] >= t.Begin {
			continue
		}
		m.refused(r, i, t)
		since := max(free[i], s.trouble.latest(free[i], t.End))
		if span(since, t.Begin) <= s.free {
			continue
		}
		if last == i {
			s.report.Leaks[len(s.report.Leaks)-1].Refusals++
			continue
		}
		last = i
		s.report.Leaks = append(s.report.Leaks, Leak{Key: r.key, Free: since, At: t.Begin, Refusals: 1})
	}
	s.report.Leaks = append(s.report.Leaks, m.leaks...)
}

// freedBy returns, for each i, when the first i locks of r had ended as far as
// any holder saw. Before the first lock it is the first call for the key.
//
// A holder that listens writes nothing between its grant and its end. If its
// process was killed meanwhile, the lock may have lasted until then.
func (r *record) freedBy(killed map[int]history.Moment) []history.Moment {
	free := make([]history.Moment, len(r.locks)+1)
	if len(r.tries) > 0 {
		free[0] = r.tries[0].Begin
	}
	for i, l := range r.locks {
		free[i+1] = max(free[i], l.granted, l.seen(), l.Told, l.UnlockBegin, l.Ended)
		if l.Listens && l.Ended == 0 {
			free[i+1] = max(free[i+1], killed[l.Process])
		}
	}
	return free
}
