package campaign

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Result is what a campaign found.
type Result struct {
	Rows          []*RowResult
	Report        *check.Report // nil: the history was not checked
	Linearization check.Linearization
	StaleLocks    []StaleLocks
	Services      *check.ServicesReport // nil: not checked
	Stored        int                   // fenced writes in the database
	Stale         int                   // of them, those after a write with a later token
	Faults        int

	Took   time.Duration // of work and faults
	Server string        // its version

	settings    fleet.Settings
	busy        time.Duration    // see Plan
	command     string           // how to repeat it; empty: not known
	interrupted bool             // the campaign was ended before its time
	outcomes    []faults.Outcome // in order of their ends
	gathered    bool             // whether the database was asked for what follows
	writes      []check.Stored   // what the fence let through
	events      []history.Event
	left        check.Left // by services
	fence       error      // what was wrong with the writes
}

// A RowResult is what it found for one row.
type RowResult struct {
	Row     faults.Row
	Times   int
	Lost    int64         // locks reported lost
	Outside int           // overlaps where no guarantee holds
	Served  time.Duration // the longest until every process served again
	Unmade  []string      // why faults could not be made; see Outcome
	Err     error
}

func newResult(set fleet.Settings, rows []faults.Row) *Result {
	r := &Result{settings: set}
	for _, row := range rows {
		r.Rows = append(r.Rows, &RowResult{Row: row})
	}
	slices.SortFunc(r.Rows, func(a, b *RowResult) int { return a.Row.Number - b.Row.Number })
	return r
}

func (r *Result) add(row faults.Row, outcome faults.Outcome, err error) {
	i := slices.IndexFunc(r.Rows, func(of *RowResult) bool { return of.Row.Number == row.Number })
	of := r.Rows[i]
	of.Outside += outcome.Outside
	if err != nil {
		of.Err = errors.Join(of.Err, err)
		r.cut(outcome)
		return
	}
	if outcome.Fault.Begin != 0 {
		r.outcomes = append(r.outcomes, outcome)
	}
	if outcome.Unmade != nil {
		of.Unmade = append(of.Unmade, outcome.Unmade.Error())
		return
	}
	r.Faults++
	of.Times++
	of.Lost += outcome.Lost
	of.Served = max(of.Served, outcome.Recovery)
}

// cut adds a fault that was interrupted.
func (r *Result) cut(outcome faults.Outcome) {
	outcome.Recovery = forGood
	if outcome.Fault.Begin != 0 {
		r.outcomes = append(r.outcomes, outcome)
	}
}

// forGood is the recovery from a fault after which the campaign ended.
const forGood = time.Hour

// bystander reports whether f did nothing to the fleet.
func (r *Result) bystander(f history.Fault) bool {
	return slices.ContainsFunc(r.Rows, func(of *RowResult) bool { return of.Row.Number == f.Row && of.Row.Bystander })
}

// mayReachAll reports whether f, although it is of one process, may have stopped
// all others: a backend that is frozen may hold what the others wait for.
func (r *Result) mayReachAll(f history.Fault) bool {
	return slices.ContainsFunc(r.Rows, func(of *RowResult) bool { return of.Row.Number == f.Row && of.Row.Effect == faults.VictimAtLeast })
}

// linearizeWithin bounds the search for an order of all calls, of which a long
// campaign has millions.
const linearizeWithin = 30 * time.Minute

// gather reads from the database what was written.
func (r *Result) gather(ctx context.Context, f *fleet.Fleet) (err error) {
	if r.writes, err = worker.StoredIn(ctx, f.DB, f.Store.Database()); err != nil {
		return err
	}
	r.Stored, r.Stale = len(r.writes), staleWrites(r.writes)
	if r.settings.Services > 0 {
		r.left, err = worker.Left(ctx, f.DB)
	}
	r.gathered = err == nil
	return err
}

// check checks the history in dir.
func (r *Result) check(dir string) error {
	events, err := read(dir)
	if err != nil {
		return err
	}
	if r.gathered {
		r.fence = r.fenced(events)
	}
	err = errors.Join(r.evaluate(events), r.fence, r.checkServices(events))
	if err == nil && !r.interrupted {
		err = r.coverage()
	}
	return err
}

// evaluate checks what holders and callers saw. Where the server knew better
// than a victim, the victim's view is left out.
func (r *Result) evaluate(events []history.Event) error {
	r.events = events
	x := explain(events, r.promises(), r.settings.Lease)
	r.Report = check.Sweep(events, r.sweepOptions(events, x.excuse)...)
	r.StaleLocks = x.measure(r.Report.Excused)
	var err error
	r.Linearization, err = check.Linearize(x.serverView(events), r.linearization())
	return errors.Join(r.Report.Err(), r.notifications(), err)
}

// How returns the settings and the size of the campaign, a sentence on each line.
func (r *Result) How() string {
	set := r.settings
	how := fmt.Sprintf("Seed %d, %v, %d processes of %d callers on %d keys, %d mixed and %d brisk callers, %d of each service, lease %v.\n%s, %s, %d processors.",
		set.Seed, r.Took.Round(time.Second), set.Processes, set.Callers, set.Keys, set.Mixed, set.Brisk, set.Services, set.Lease,
		r.Server, runtime.Version(), runtime.NumCPU())
	if r.command != "" {
		how += "\nTo repeat it in internal/chaos: " + r.command
	}
	if r.busy > 0 {
		how += fmt.Sprintf("\nOn a busy machine: bounds on time are %v longer, and any refusal may go unjudged.", r.busy)
	}
	if r.interrupted {
		how += "\nThe campaign was interrupted."
	}
	if r.Report != nil {
		how += fmt.Sprintf("\n%d faults; %d operations, of which another process contended %d.\n%d of these ran during a fault of the fleet, or before all processes had recovered from one.",
			r.Faults, r.Report.Operations, r.Report.Contended, r.Report.Troubled)
	}
	return how
}

// String returns a table of the rows, and totals.
func (r *Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.How())
	if len(r.Rows) > 0 {
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "\n%s\n", strings.Join(columns, "\t"))
		for _, of := range r.Rows {
			fmt.Fprintln(w, strings.Join(r.cells(of), "\t"))
		}
		w.Flush()
	}
	for _, of := range r.Rows {
		for _, why := range of.Unmade {
			fmt.Fprintf(&b, "\na fault could not be made: %s\n", why)
		}
	}
	if r.Report != nil {
		for _, e := range r.StaleLocks {
			fmt.Fprintf(&b, "\n%v", e)
		}
		fmt.Fprintf(&b, "\n%s\n\n%v", r.totals(), r.Report)
	}
	if r.Services != nil {
		fmt.Fprintf(&b, "\n%v", r.Services)
	}
	return b.String()
}

// totals returns a line of figures over all rows.
func (r *Result) totals() string {
	outside, served := 0, time.Duration(0)
	for _, of := range r.Rows {
		outside += of.Outside
		served = max(served, of.Served)
	}
	line := fmt.Sprintf("%d late effects", len(r.Report.Overlaps))
	if r.Faults > 0 {
		line += fmt.Sprintf(" in %d faults; %d overlaps where no guarantee holds; every process served again within %v",
			r.Faults, outside, served.Round(time.Millisecond))
	}
	return fmt.Sprintf("%s; %d fenced writes stored, %d refused by the fence, %d not made since the lock was known to be lost, %d stale ones stored; %d of %d refusals not judged, %d right in any state",
		line, r.Stored, r.Report.Writes[history.Fenced], r.Report.Writes[history.Lost], r.Stale, r.Linearization.Excused, r.Linearization.Refusals, r.Linearization.Explained)
}
