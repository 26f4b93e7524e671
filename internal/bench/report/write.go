// Package report turns results into docs/benchmarks.md with its plots, and into
// a list of the project's goals for a terminal.
package report

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"

	"github.com/latchkey-go/latchkey/internal/bench/results"
)

// Write writes benchmarks.json, benchmarks.md and the plots into a directory,
// which it makes if there is none.
func Write(dir string, r *results.Results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := r.Save(filepath.Join(dir, "benchmarks.json")); err != nil {
		return err
	}
	var drawn []plotFile
	for _, p := range plots(r) {
		if err := p.save(filepath.Join(dir, p.file)); err != nil {
			return fmt.Errorf("report: %s: %w", p.file, err)
		}
		drawn = append(drawn, p)
	}
	return os.WriteFile(filepath.Join(dir, "benchmarks.md"), []byte(markdown(r, drawn)), 0o644)
}

// Print prints the goals.
func Print(w io.Writer, r *results.Results) error {
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
