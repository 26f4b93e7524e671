package demo

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// report prints a line for each result.
func report(out io.Writer, results []Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LIMITS BY\tSTREAMS BROKEN\tLOCKS FREE\tADMITTED AGAIN\tP50\tP99\tALL\tPLACES LEAKED")
	for _, r := range results {
		slices.Sort(r.After)
		fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%s\t%s\t%s\t%d\n", r.Kind, r.Broken, r.free(), len(r.After),
			r.quantile(50), r.quantile(99), r.quantile(100), r.Leaked())
	}
	_ = w.Flush() // an error of standard output shows nowhere else
	fmt.Fprintln(out, "\nTimes are from the kill: until PostgreSQL has freed all locks, and until the first token of a new stream on gateway 2.")
}

// free returns how soon PostgreSQL has freed all locks.
func (r Result) free() string {
	if r.Freed == 0 {
		return "-"
	}
	return r.Freed.Round(time.Millisecond).String()
}

// quantile returns the time within which percent of the broken streams had a new
// one, or "never". After is sorted.
func (r Result) quantile(percent int) string {
	n := (r.Broken*percent + 99) / 100
	if n > len(r.After) {
		return "never"
	}
	return r.After[n-1].Round(time.Millisecond).String()
}
