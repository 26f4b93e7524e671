package check

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// leaks finds refusals of r that come too late after the last holder's end. The
// bound is coarse and needs no excuse: whatever a call that gave up has left
// behind is gone by then.
func (s *sweep) leaks(r *record) {
	if s.Free == 0 || !r.plain {
		return
	}
	free := s.freed(r)
	for _, t := range r.tries {
		i := r.after(t.End)
		if t.Result != history.Held || free[i] >= t.Begin || i < len(r.locks) && r.locks[i].asked <= t.End {
			continue
		}
		since := max(free[i], s.troubled.latest(free[i], t.End))
		if time.Duration(t.Begin-since) > s.Free {
			s.report.found(ErrLeaked, t.Begin, "key %d is free since %d: %+v", r.key, since, t)
		}
	}
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
