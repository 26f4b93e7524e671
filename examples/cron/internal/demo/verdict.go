package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// The evidence, which trusts no lock and no mark: the rows that the runs left.
const (
	allRuns = "SELECT count(*) FROM %[1]s"
	died    = "SELECT count(*) FROM %[1]s WHERE ended IS NULL"
	runners = "SELECT count(DISTINCT instance) FROM %[1]s"
	twice   = "SELECT count(*) FROM (SELECT FROM %[1]s GROUP BY job, tick HAVING count(*) > 1) AS ticks"

	// The next run of a job begins when the last has ended, or died.
	overlaps = `SELECT count(*) FROM %[1]s a JOIN %[1]s b ON a.job = b.job AND a.id < b.id
		WHERE b.began < a.ended`
)

// missed counts the ticks which instances came to and nobody ran while no run of the job was under way: those
// after its first run and before its last. A run that died keeps a tick more from being run, at the most.
func missed(all []event) (n int) {
	jobs := fates(all)
	for _, s := range schedules {
		var (
			until time.Time // the last run kept ticks from being run
			since int       // it
		)
		for _, tick := range slices.SortedFunc(maps.Keys(jobs[s.job]), time.Time.Compare) {
			switch f := jobs[s.job][tick]; {
			case len(f.ran) > 0:
				n += since
				until, since = tick.Add(s.every*time.Duration(f.kept())), 0
			case !until.IsZero() && tick.After(until):
				since++
			}
		}
	}
	return n
}

// printVerdict counts what was run. It fails if a tick was run twice, runs of a job overlapped, or what the
// instances told is not what the database has.
func printVerdict(ctx context.Context, out io.Writer, d *database, all []event, f *fleet) error {
	var n [5]int
	for i, query := range []string{allRuns, died, runners, twice, overlaps} {
		var err error
		if n[i], err = d.ask(ctx, query); err != nil {
			return err
		}
	}
	told := map[what]int{}
	for _, e := range all {
		told[e.What]++
	}
	fmt.Fprintf(out, "\n%d runs on %d instances; %d times an instance was refused. cron.Recover reported %d panics.\n"+
		"Instances killed: %d; runs that died with them, and are not run again: %d.\n"+
		"Ticks run twice: %d. Runs beside another of the same job: %d.\n"+
		"Ticks between a job's first run and its last that nobody ran, though no run was under way: %d.\n",
		n[0], n[2], told[refused], told[panicked], f.killed(), n[1], n[3], n[4], missed(all))
	switch {
	case n[3] > 0:
		return errors.New("a tick was run twice")
	case n[4] > 0:
		return errors.New("a job had two runs at once")
	case told[failed] > 0:
		return errors.New("a run failed")
	case n[0] == 0 || n[0] > told[began] || n[0] < told[working]: // who is killed may have begun, and written nothing
		return fmt.Errorf("the database has %d runs, and the instances told of %d to %d", n[0], told[working], told[began])
	}
	fmt.Fprintln(out, "OK: each tick at most once, on clocks that differ by seconds.")
	return nil
}
