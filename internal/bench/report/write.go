// Package report prints results: tables of contenders in Markdown, and a list
// of the project's goals.
package report

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// Print prints the tables, and the goals. After a quick run it prints the goals
// alone.
func Print(w io.Writer, r *results.Results) error {
	if !r.Quick {
		if _, err := fmt.Fprintln(w, markdown(r)); err != nil {
			return err
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\tfloor\tgoal\tmeasured\t")
	for _, g := range goals() {
		s := g.measure(r)
		v := g.statusOf(s)
		if v == notMeasured {
			continue
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", g.what, g.bound(g.floor), g.bound(g.goal), spreadText(s, g.unit), v)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	how := ""
	if r.Quick {
		how = "; few and short rounds: these ratios are indicative"
	}
	_, err := fmt.Fprintf(w, "medians over rounds (lowest–highest); took %v%s\n", r.Took, how)
	return err
}
