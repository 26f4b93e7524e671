package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/nemesis"
)

// A Result is what a campaign came to.
type Result struct {
	Rows    []*RowResult
	Report  *check.Report
	Verdict check.Verdict
	Early   []Early
	Stored  int // fenced writes in the database
	Stale   int // of them, those after a write with a later token
	Faults  int

	settings fleet.Settings
}

// A RowResult is one row's.
type RowResult struct {
	Row        nemesis.Row
	Times      int
	Lost       int64           // locks reported lost
	Recoveries []time.Duration // until every process served again, of each fault
	Err        error
}

func newResult(set fleet.Settings, rows []nemesis.Row) *Result {
	r := &Result{settings: set}
	for _, row := range rows {
		r.Rows = append(r.Rows, &RowResult{Row: row})
	}
	slices.SortFunc(r.Rows, func(a, b *RowResult) int { return a.Row.Number - b.Row.Number })
	return r
}

func (r *Result) add(row nemesis.Row, injury nemesis.Injury, err error) {
	i := slices.IndexFunc(r.Rows, func(of *RowResult) bool { return of.Row.Number == row.Number })
	of := r.Rows[i]
	if err != nil {
		of.Err = errors.Join(of.Err, err)
		return
	}
	r.Faults++
	of.Times++
	of.Lost += injury.Lost
	of.Recoveries = append(of.Recoveries, injury.Recovery)
}

// linearizeWithin bounds the search for an order of all calls.
const linearizeWithin = 5 * time.Minute

// check has the history checked.
func (r *Result) check(ctx context.Context, f *fleet.Fleet) error {
	events, err := read(f.Dir)
	if err != nil {
		return err
	}
	rows, err := stored(ctx, f)
	if err != nil {
		return err
	}
	r.Stored = len(rows)
	if r.Stale, err = stale(ctx, f); err != nil {
		return err
	}
	explained := explain(events, r.settings.Lease)
	believed := explained.believed(events)
	early, tooLong := explained.measure(check.Sweep(events).Overlaps)
	r.Early = early
	r.Report = check.Sweep(believed, r.sweepOptions(events)...)
	explained.told(r.Report)
	r.Verdict, err = check.Linearize(believed, linearizeWithin)
	fence := errors.Join(check.Tokens(rows), check.Writes(events, rows))
	return errors.Join(r.Report.Err(), tooLong, err, fence)
}

// String is a table of the rows, and totals.
func (r *Result) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tfault\ttimes\tlocks lost\tserved again: p50\tmax\tkeys granted again: p50\tmax\tverdict")
	for _, of := range r.Rows {
		verdict := "ok"
		if of.Err != nil {
			verdict = "VIOLATED"
		}
		p50, longest := middle(of.Recoveries)
		fmt.Fprintf(w, "%d\t%s\t%d\t%d\t%v\t%v\t%s\t%s\n", of.Row.Number, of.Row.Name, of.Times, of.Lost,
			p50.Round(time.Millisecond), longest.Round(time.Millisecond), r.keysBack(of.Row.Number), verdict)
	}
	w.Flush() //nolint:errcheck // a Builder does not fail
	if r.Report != nil {
		for _, e := range r.Early {
			fmt.Fprintf(&b, "\n%v", e)
		}
		fmt.Fprintf(&b, "\n%d operations, %d contended by another process; %d faults; %d overlaps; %d fenced writes stored, %d of stale holders refused, %d stale ones stored\n\n%v",
			r.Report.Operations, r.Report.Contended, r.Faults, len(r.Report.Overlaps),
			r.Stored, r.Report.Writes[history.Fenced]+r.Report.Writes[history.Lost], r.Stale, r.Report)
	}
	return b.String()
}

// keysBack is the two columns about the keys that victims of row held.
func (r *Result) keysBack(row int) string {
	if r.Report != nil {
		for _, rec := range r.Report.Recoveries {
			if rec.Row == row && rec.Keys > 0 {
				return fmt.Sprintf("%v\t%v", rec.P50.Round(time.Millisecond), rec.Max.Round(time.Millisecond))
			}
		}
	}
	return "-\t-"
}

// middle is the median and the longest.
func middle(all []time.Duration) (p50, longest time.Duration) {
	if len(all) == 0 {
		return 0, 0
	}
	sorted := slices.SortedFunc(slices.Values(all), cmp.Compare[time.Duration])
	return sorted[(len(sorted)-1)/2], sorted[len(sorted)-1]
}
