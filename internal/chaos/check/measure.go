package check

import (
	"math"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Times says what the faults of a row cost their victims, and for how long.
// The times run from the beginning of the fault.
type Times struct {
	Told    []time.Duration // until holders were told of their loss, sorted
	Back    []time.Duration // until keys were granted again, sorted
	Unasked int             // keys that no caller wanted again in time
}

// Percentile is the smallest of sorted that is not less than a share p of them; 0
// if there are none.
func Percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// measure measures what became of the locks that victims held when a fault
// began.
func (s *sweep) measure() {
	fault := map[*lock]history.Fault{} // for which a loss counts: the first during which the lock was held
	for _, f := range s.faults {
		effect, ok := s.Effects[f.Row]
		if !ok || f.Unmade {
			continue
		}
		t := s.report.Rows[f.Row]
		if t == nil {
			t = new(Times)
			s.report.Rows[f.Row] = t
		}
		for _, r := range s.keys {
			l := r.heldBy(f)
			if l == nil {
				continue
			}
			// One that was seen valid when its process woke up outlived the fault.
			if first, ok := fault[l]; effect.Told && (!ok || s.frozen.of(l.Process).touch(first.Begin, first.Begin) && l.Valid > first.End) {
				fault[l] = f
			}
			if effect.Back > 0 && r.plain { // a place of a limit need not be wanted again
				s.back(t, r, l, f, effect)
			}
		}
	}
	for l, f := range fault {
		if t := s.report.Rows[f.Row]; l.Told != 0 {
			t.Told = append(t.Told, time.Duration(l.Told-f.Begin))
		}
	}
	for _, t := range s.report.Rows {
		slices.Sort(t.Told)
		slices.Sort(t.Back)
	}
}

// heldBy is the lock of r that f's victim held when f began, nil if none.
func (r *record) heldBy(f history.Fault) *lock {
	i := r.after(f.Begin)
	if i == 0 {
		return nil
	}
	l := r.locks[i-1]
	if f.Process != 0 && f.Process != l.Process || l.From > f.Begin {
		return nil
	}
	for _, end := range []history.Moment{l.UnlockBegin, l.Told, l.Ended} {
		if end != 0 && end <= f.Begin {
			return nil
		}
	}
	return l
}

// back measures when r, which l held when f began, was granted again. The time in
// which a later fault kept all requests away does not count, nor that in which
// one kept away the request of the next holder.
func (s *sweep) back(t *Times, r *record, l *lock, f history.Fault, effect Effect) {
	if l.returned() {
		return // its holder kept it through the fault
	}
	origin := f.Begin
	if effect.FromEnd {
		origin = max(f.Begin, f.End)
	}
	bound := origin + history.Moment(effect.Back+effect.Slack)
	i := r.after(f.Begin)
	if i == len(r.locks) {
		if s.wanted(r, bound, math.MaxInt64) {
			s.report.found(ErrSlow, bound, "row %d: key %d was wanted and is not granted again", f.Row, r.key)
		} else {
			t.Unasked++
		}
		return
	}
	next, later := r.locks[i], max(f.Begin, f.End)
	if next.asked > bound && !s.wanted(r, bound, next.asked) {
		t.Unasked++
		return
	}
	took := next.granted - origin
	if later < next.granted {
		asked := max(later, next.asked)
		took -= s.cut[0].covered(later, asked) + s.cut.of(next.Process).covered(asked, next.granted)
	}
	t.Back = append(t.Back, max(0, time.Duration(took)))
	if time.Duration(took) > effect.Back+effect.Slack {
		s.report.found(ErrSlow, next.granted, "row %d: key %d after %v, bound %v", f.Row, r.key, time.Duration(took), effect.Back+effect.Slack)
	}
}

// wanted reports whether a call that began before asked shows that r's key was not
// free after m. It was refused, or it had waited since before m. The calls of a
// process that was cut off meanwhile show nothing.
func (s *sweep) wanted(r *record, m, asked history.Moment) bool {
	return slices.ContainsFunc(r.tries, func(t history.Try) bool {
		if t.Begin >= asked || t.End <= m || s.cut.of(t.Process).touch(max(m, t.Begin), t.End) {
			return false
		}
		return t.Result == history.Held && t.Begin > m || t.Waits && t.Begin <= m
	})
}
