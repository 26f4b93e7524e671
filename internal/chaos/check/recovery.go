package check

import (
	"math"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Recovery says how long it took until the keys of victims were granted
// again, over all faults of a row.
type Recovery struct {
	Row   int
	Name  string
	Bound time.Duration
	Goal  time.Duration // see WithGoal; 0: none

	Keys          int // that were granted again
	Survived      int // whose holder kept the lock through the fault and gave it back
	Unasked       int // that no caller wanted when the bound passed, nor later until they were granted
	Never         int // that were wanted after the bound and not granted again
	Within        int // that were granted again within the goal
	Max, P50, P99 time.Duration

	times []time.Duration
}

// Slow reports whether a key came back too late.
func (rec *Recovery) Slow() bool { return rec.Never > 0 || rec.Max > rec.Bound }

func (s *sweep) recoveries(rs *records) {
	for _, f := range rs.faults {
		s.report.Faults[f.Row]++
		rule, ok := s.rules[f.Row]
		if !ok || f.Process == 0 && slices.Contains(s.kills, f.Row) { // a kill that could not be made
			continue
		}
		recovery := s.report.recovery(f.Row)
		recovery.Name, recovery.Bound, recovery.Goal = f.Name, rule.bound, s.goals[f.Row]
		for _, r := range rs.keys {
			if l := r.heldBy(f); l != nil && (r.plain || l.Kind == history.Term) { // a place of a limit need not be wanted again
				recovery.measure(r, l, f, rule, s.cut)
			}
		}
	}
	for _, r := range s.report.Recoveries {
		r.summarize()
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

// measure adds what became of r, which l held when f began. The time in which a
// later fault kept all requests away does not count, nor that in which one kept
// away the request of the next holder.
func (rec *Recovery) measure(r *record, l *lock, f history.Fault, rule rule, cut Times) {
	origin := f.Begin
	if rule.origin == FromEnd {
		origin = max(f.Begin, f.End)
	}
	bound := origin + history.Moment(rule.bound)
	switch i := r.after(f.Begin); {
	case l.returned():
		rec.Survived++
	case i < len(r.locks) && r.locks[i].asked > bound && !r.wantedSince(bound, r.locks[i].asked, cut):
		rec.Unasked++
	case i < len(r.locks):
		rec.Keys++
		next, later := r.locks[i], max(f.Begin, f.End)
		took := next.granted - origin
		if later < next.granted {
			asked := max(later, next.asked)
			took -= cut.covered(0, later, asked) + cut.covered(next.Process, asked, next.granted)
		}
		rec.times = append(rec.times, max(0, time.Duration(took)))
	case r.wantedSince(bound, math.MaxInt64, cut):
		rec.Never++
	default:
		rec.Unasked++
	}
}

// wantedSince reports whether a call that began before asked could have found r's
// key free after m, and did not: it was refused, or waited since before m. Calls
// that were cancelled early or met no database show nothing, and neither do those
// of a process whose requests do not reach the server.
func (r *record) wantedSince(m, asked history.Moment, cut Times) bool {
	return slices.ContainsFunc(r.tries, func(t history.Try) bool {
		if t.Begin >= asked || t.End <= m || cut.touch(t.Process, max(m, t.Begin), t.End) {
			return false
		}
		return t.Result == history.Held && t.Begin > m || t.Waits && t.Begin <= m
	})
}

func (rec *Recovery) summarize() {
	for _, t := range rec.times {
		if t <= rec.Goal {
			rec.Within++
		}
	}
	rec.P50, rec.P99, rec.Max = summary(rec.times)
}

// summary sorts times; all is 0 if there are none.
func summary(times []time.Duration) (p50, p99, longest time.Duration) {
	if len(times) == 0 {
		return 0, 0, 0
	}
	slices.Sort(times)
	return percentile(times, 0.5), percentile(times, 0.99), times[len(times)-1]
}

// percentile is the smallest of sorted that is not less than a share p of them.
func percentile(sorted []time.Duration, p float64) time.Duration {
	return sorted[max(0, int(math.Ceil(p*float64(len(sorted))))-1)]
}
