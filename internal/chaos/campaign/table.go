package campaign

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
)

// columns is the head of the table. Three times in a cell are the median, the
// 99th percentile and the longest.
var columns = []string{
	"row", "fault", "times", "locks lost", "told p50 / p99 / max", "told before the next grant",
	"key free again p50 / p99 / max", "within the goal", "overlaps", "result",
}

// cells is one line of the table.
func (r *Result) cells(of *RowResult) []string {
	told, before := r.toldCells(of)
	free, within := r.freeCells(of)
	return []string{
		strconv.Itoa(of.Row.Number), of.Row.Name, strconv.Itoa(of.Times), strconv.FormatInt(of.Lost, 10),
		told, before, free, within, r.overlapCell(of), r.status(of),
	}
}

// noFigure is the cell of what does not apply.
const noFigure = "–"

func (r *Result) toldCells(of *RowResult) (told, before string) {
	t := r.notification(of)
	if t == nil {
		return noFigure, noFigure
	}
	told = noFigure
	all := []string{fmt.Sprintf("%d of %d", t.InTime(), t.Locks)}
	if t.Locks > 0 {
		told = three(t.P50, t.P99, t.Max)
	}
	if t.Listeners > 0 {
		told += fmt.Sprintf("; %d by their contexts, p50 %d ms", t.Listeners, t.Heard.Milliseconds())
	}
	for _, more := range []struct {
		n    int
		what string
	}{{t.Woke, "of them on waking"}, {t.Returned, "more given back"}, {t.Untold, "more killed untold"}} {
		if more.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", more.n, more.what))
		}
	}
	return told, strings.Join(all, ", ")
}

func (r *Result) freeCells(of *RowResult) (free, within string) {
	rec := r.recovery(of)
	if rec == nil || rec.Keys == 0 {
		return noFigure, noFigure
	}
	return three(rec.P50, rec.P99, rec.Max), fmt.Sprintf("%.4g %% in %v", 100*float64(rec.Within)/float64(rec.Keys), rec.Goal)
}

// three is three times in milliseconds.
func three(p50, p99, longest time.Duration) string {
	return fmt.Sprintf("%d / %d / %d ms", p50.Milliseconds(), p99.Milliseconds(), longest.Milliseconds())
}

// overlapCell counts the violations, and the overlaps that are none.
func (r *Result) overlapCell(of *RowResult) string {
	if r.Report == nil {
		return noFigure
	}
	all := []string{strconv.Itoa(r.overlaps(of))}
	for _, e := range r.StaleLocks {
		if e.Row == of.Row.Number {
			all = append(all, fmt.Sprintf("%d until the client noticed (longest seen %.1f ms)", e.Times, float64(e.Longest.Microseconds())/1000))
		}
	}
	if of.Outside > 0 {
		all = append(all, fmt.Sprintf("%d where no guarantee holds", of.Outside))
	}
	return strings.Join(all, ", ")
}

// overlaps counts those that began after a fault of this row, and before the
// next fault.
func (r *Result) overlaps(of *RowResult) (n int) {
	for _, o := range r.Report.Overlaps {
		if r.rowAt(o.From) == of.Row.Number {
			n++
		}
	}
	return n
}

// notification is that of a row, nil if there is none.
func (r *Result) notification(of *RowResult) *check.Notification {
	if r.Report != nil {
		for _, t := range r.Report.Notifications {
			if t.Row == of.Row.Number {
				return t
			}
		}
	}
	return nil
}

// recovery is that of a row, nil if there is none.
func (r *Result) recovery(of *RowResult) *check.Recovery {
	if r.Report != nil {
		for _, rec := range r.Report.Recoveries {
			if rec.Row == of.Row.Number {
				return rec
			}
		}
	}
	return nil
}
