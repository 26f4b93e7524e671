package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/sqllock"
)

const rounds = 5

// loads are the rows of the table: workers, and jobs enough for a second or so.
var loads = []struct{ workers, jobs int }{{1, 500}, {8, 2000}, {64, 4000}}

// bench measures jobs that do nothing, in one process. The ways take turns, so that what
// else the machine does falls on both, and their ratio is one of neighbours.
func bench(ctx context.Context, p *place, out io.Writer) error {
	return p.withSchema(ctx, func(db *sqlx.DB, schema string) error {
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintf(table, "WORKERS\t(a) ADVISORY LOCK\t(b) SKIP LOCKED\t(a)/(b)\t\n")
		for _, load := range loads {
			var a, b, ratio []float64
			for round := range rounds {
				rates := map[string]float64{}
				for _, way := range inTurn(round) {
					rate, err := measure(ctx, p, db, schema, way, load.workers, load.jobs)
					if err != nil {
						return err
					}
					rates[way] = rate
				}
				a, b = append(a, rates["advisory"]), append(b, rates["skip"])
				ratio = append(ratio, rates["advisory"]/rates["skip"])
			}
			fmt.Fprintf(table, "%d\t%.0f jobs/s\t%.0f jobs/s\t%.2f\t\n", load.workers, median(a), median(b), median(ratio))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "\nMedians of %d rounds in which the ways take turns; the ratio is that within a round. One process, no-op jobs,\n"+
			"database and workers on one machine.\n", rounds)
		return err
	})
}

// inTurn is the ways, each first in every other round.
func inTurn(round int) []string {
	both := []string{"advisory", "skip"}
	if round%2 == 1 {
		slices.Reverse(both)
	}
	return both
}

func median(values []float64) float64 {
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}

// measure is jobs per second of one way.
func measure(ctx context.Context, p *place, setup *sqlx.DB, schema, way string, workers, jobs int) (rate float64, err error) {
	if err := execute(ctx, setup.DB, "TRUNCATE jobs, latchkey_fence"); err != nil {
		return 0, err
	}
	if _, err := setup.ExecContext(ctx, "INSERT INTO jobs (kind, priority) SELECT 'nothing', i % 3 FROM generate_series(1, $1::int) i", jobs); err != nil {
		return 0, err
	}
	if err := execute(ctx, setup.DB, "ANALYZE jobs"); err != nil {
		return 0, err
	}
	db, err := connect(p.url, schema, min(workers, 32)+2)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	lockDB, err := connect(p.url, schema, 5)
	if err != nil {
		return 0, err
	}
	defer lockDB.Close()
	locks, err := sqllock.Open(ctx, lockDB.DB)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, locks.Close()) }()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var done atomic.Int64
	var took time.Duration
	begin := time.Now()
	nothing := queue.Kind{Work: func(context.Context, queue.Job) (queue.Effect, error) { return nil, nil }}
	q, err := queue.Open(ctx, db, queue.Kinds{"nothing": nothing}, queue.WithEnded(func(_ queue.Job, o queue.Outcome) {
		if o == queue.Done && done.Add(1) == int64(jobs) {
			took = time.Since(begin)
			stop()
		}
	}))
	if err != nil {
		return 0, err
	}
	begin = time.Now()
	queue.Run(ctx, ways[way](q, locks), workers)
	if took == 0 {
		return 0, context.Cause(ctx) // we were told to stop
	}
	return float64(jobs) / took.Seconds(), nil
}
