package campaign

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Result is what a campaign did and found.
type Result struct {
	Settings    fleet.Settings
	Busy        time.Duration // see Plan
	Command     string        // how to repeat it
	Server      string        // its version
	Took        time.Duration // work and faults
	Least       Least
	Interrupted bool // the campaign was ended before its time
	Rows        []int
	Outcomes    []faults.Outcome // in order of their ends
	Failures    []Failure
	Stored      []check.Stored // what the fence let through
	Gathered    bool           // Stored is known

	Report *check.Report `json:"-"` // nil: the history was not checked
}

// A Failure is a fault that had an effect that it may not have, or that ended the
// campaign.
type Failure struct {
	Row  int
	Text string
}

// String returns how the campaign was run, a table of the rows, and totals.
func (r *Result) String() string {
	var b strings.Builder
	set := r.Settings
	fmt.Fprintf(&b, "Seed %d, %v, %d processes of %d callers on %d keys and %d mixed callers, lease %v.\n%s, %s, %d processors.\n",
		set.Seed, r.Took.Round(time.Second), set.Processes, set.Callers, set.Keys, set.Mixed, set.Lease, r.Server, runtime.Version(), runtime.NumCPU())
	if r.Command != "" {
		fmt.Fprintf(&b, "To repeat it in internal/chaos: %s\n", r.Command)
	}
	if r.Busy > 0 {
		fmt.Fprintf(&b, "On a busy machine: bounds on time are %v longer.\n", r.Busy)
	}
	if r.Interrupted {
		fmt.Fprintln(&b, "The campaign was interrupted.")
	}
	rep := r.Report
	if rep == nil {
		return b.String()
	}
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nrow\tfault\ttimes\tlocks lost\ttold p50 / p99 / max\tkey free again p50 / p99 / max\tresult")
	for _, row := range faults.Rows(set.Store) {
		if slices.Contains(r.Rows, row.Number) {
			fmt.Fprintln(w, r.line(row))
		}
	}
	w.Flush()
	fmt.Fprintf(&b, "\n%d faults, %d operations, %d during a fault. Of the calls %d were refused, since another caller had the key.\n",
		len(r.Outcomes), rep.Operations, rep.Troubled, rep.Contended)
	fmt.Fprintf(&b, "%d locks, %d lost. Overlaps: %d, and %d until the client noticed. Told late by processes that could not run: %d.\n",
		rep.Locks, rep.Losses, len(rep.Overlaps), len(rep.Excused), rep.ToldAwake)
	fmt.Fprintf(&b, "%d readers beside readers, %d last places of limits.\n"+
		"%d fenced writes stored, %d refused by the fence, %d not made since the lock was known to be lost.\n",
		rep.Beside, rep.Full, len(r.Stored), rep.Writes[history.Fenced], rep.Writes[history.Lost])
	for _, version := range slices.Sorted(maps.Keys(rep.Versions)) {
		if share := rep.Versions[version]; set.Old != "" {
			fmt.Fprintf(&b, "Of %s: %d grants, %d after a lock of the other version; %d fenced writes stored, %d refused by the fence.\n",
				version, share.All(), share.After, share.Writes[history.OK], share.Writes[history.Fenced])
		}
	}
	return b.String()
}

// line is one line of the table.
func (r *Result) line(row faults.Row) string {
	times, lost := 0, int64(0)
	result := "ok"
	for _, o := range r.Outcomes {
		switch {
		case o.Fault.Row != row.Number:
		case o.Unmade != "":
			result = "ok" + o.Unmade
		default:
			times, lost = times+1, lost+o.Lost
		}
	}
	if times == 0 && result == "ok" {
		result = "not run"
	}
	told, back := "–", "–"
	if t := r.Report.Rows[row.Number]; t != nil {
		told, back = three(t.Told), three(t.Back)
	}
	for _, f := range r.Failures {
		if f.Row == row.Number {
			result = "VIOLATED, or broken off"
		}
	}
	for _, f := range r.Report.Findings {
		if f.At != 0 && r.rowAt(f.At) == row.Number {
			result = "VIOLATED"
		}
	}
	return fmt.Sprintf("%d\t%s\t%d\t%d\t%s\t%s\t%s", row.Number, row.Name, times, lost, told, back, result)
}

// three is the median, the 99th percentile and the longest of sorted times.
func three(times []time.Duration) string {
	if len(times) == 0 {
		return "–"
	}
	return fmt.Sprintf("%d / %d / %d ms", check.Percentile(times, 0.5).Milliseconds(), check.Percentile(times, 0.99).Milliseconds(), times[len(times)-1].Milliseconds())
}

// rowAt returns the row of the last fault that had begun by m, or 0.
func (r *Result) rowAt(m history.Moment) int {
	var last history.Fault
	for _, o := range r.Outcomes {
		if o.Fault.Begin <= m && o.Fault.Begin >= last.Begin {
			last = o.Fault
		}
	}
	return last.Row
}
