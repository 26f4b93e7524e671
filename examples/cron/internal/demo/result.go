package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// The evidence is the rows that the runs left. It relies on no lock and no mark.
const (
	allRuns = "SELECT count(*) FROM %[1]s"
	died    = "SELECT count(*) FROM %[1]s WHERE ended IS NULL"
	runners = "SELECT count(DISTINCT instance) FROM %[1]s"
	twice   = "SELECT count(*) FROM (SELECT FROM %[1]s GROUP BY job, tick HAVING count(*) > 1) AS ticks"

	// The next run of a job begins when the last has ended, or its instance was
	// killed.
	overlaps = `SELECT count(*) FROM %[1]s a JOIN %[1]s b ON a.job = b.job AND a.id < b.id
		WHERE b.began < a.ended`
)

// missed counts the ticks that no instance ran, though instances came for them
// and no run of the job was under way. It looks between a job's first run and its
// last. A run whose instance was killed keeps at most one more tick from being run.
func missed(all []event) (n int) {
	jobs := results(all)
	for _, s := range schedules {
		var (
			until time.Time // the last run kept ticks from being run
			since int       // ticks without a run, after until
		)
		for _, tick := range slices.SortedFunc(maps.Keys(jobs[s.job]), time.Time.Compare) {
			switch r := jobs[s.job][tick]; {
			case len(r.ran) > 0:
				n += since
				until, since = tick.Add(s.every*time.Duration(r.kept())), 0
			case !until.IsZero() && tick.After(until):
				since++
			}
		}
	}
	return n
}

// printResult counts the runs. It fails if a tick was run twice, if runs of a job
// overlapped, or if the database does not have what the instances reported.
func printResult(ctx context.Context, out io.Writer, d *database, all []event, f *fleet) error {
	var n [5]int
	for i, query := range []string{allRuns, died, runners, twice, overlaps} {
		var err error
		if n[i], err = d.ask(ctx, query); err != nil {
			return err
		}
	}
	reported := map[what]int{}
	for _, e := range all {
		reported[e.What]++
	}
	fmt.Fprintf(out, "\n%d runs on %d instances; instances were rejected %d times. cron.Recover reported %d panics.\n"+
		"Instances killed: %d. Runs that were cut off with them, and are not run again: %d.\n"+
		"Ticks run twice: %d. Runs that overlapped another of the same job: %d.\n"+
		"Ticks between a job's first run and its last that no instance ran, though no run was under way: %d.\n",
		n[0], n[2], reported[rejected], reported[panicked], f.killed(), n[1], n[3], n[4], missed(all))
	switch {
	case n[3] > 0:
		return errors.New("a tick was run twice")
	case n[4] > 0:
		return errors.New("a job had two runs at once")
	case reported[failed] > 0:
		return errors.New("a run failed")
	case n[0] == 0 || n[0] > reported[began] || n[0] < reported[working]: // a killed run may have begun, and written nothing
		return fmt.Errorf("the database has %d runs, and the instances reported %d to %d", n[0], reported[working], reported[began])
	}
	fmt.Fprintln(out, "OK: each tick was run at most once, on clocks that differ by seconds.")
	return nil
}
