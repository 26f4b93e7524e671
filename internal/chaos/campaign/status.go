package campaign

import (
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// status returns the result of a row in a word. It is ok only if the row's
// fault was made, cost what it should, and no check failed then.
func (r *Result) status(of *RowResult) string {
	switch t := r.notification(of); {
	case r.violated(of):
		return "VIOLATED"
	case of.Err != nil:
		return "broken off"
	case of.Times == 0:
		return "not run"
	case r.Report == nil:
		return "not checked"
	case r.fence != nil:
		return "ok, but for the fence: VIOLATED in some row"
	case slices.Contains(r.promises().notifies, of.Row.Number) && (t == nil || t.Locks == 0):
		return "no holder was told"
	case r.nothingLost(of):
		return "nothing lost"
	case t != nil && r.missedGoal(t) != "":
		return "ok; " + r.missedGoal(t)
	}
	return "ok"
}

func (r *Result) violated(of *RowResult) bool {
	if errors.Is(of.Err, faults.ErrViolated) {
		return true
	}
	if r.Report == nil {
		return false
	}
	t, rec := r.notification(of), r.recovery(of)
	return rec != nil && rec.Slow() || t != nil && r.lateNotification(t) != "" ||
		slices.ContainsFunc(r.wrong(), func(m history.Moment) bool { return r.rowAt(m) == of.Row.Number })
}

// nothingLost reports whether the row's faults should have cost keys and cost
// none, so that no recovery could be measured.
func (r *Result) nothingLost(of *RowResult) bool {
	rec := r.recovery(of)
	return r.bounded(of.Row.Number) && !slices.Contains(r.promises().notifies, of.Row.Number) && (rec == nil || rec.Keys == 0)
}

// wrong returns the moments at which something was wrong.
func (r *Result) wrong() (all []history.Moment) {
	for _, o := range r.Report.Overlaps {
		all = append(all, o.From)
	}
	for _, l := range r.Report.Late {
		all = append(all, l.At)
	}
	for _, v := range r.Report.Resurrected {
		all = append(all, v.At)
	}
	for _, l := range r.Report.Leaks {
		all = append(all, l.At)
	}
	for _, l := range r.Report.Long {
		all = append(all, l.At)
	}
	for _, p := range r.Linearization.Illegal {
		all = append(all, p.To)
	}
	return all
}

// rowAt returns the row of the last fault that had begun by m, or 0.
func (r *Result) rowAt(m history.Moment) int {
	var last history.Fault
	for _, i := range r.outcomes {
		if i.Fault.Begin <= m && i.Fault.Begin >= last.Begin {
			last = i.Fault
		}
	}
	return last.Row
}
