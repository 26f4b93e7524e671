package demo

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

// Loads are the rows of the table: workers, and enough jobs for about a second.
var Loads = []struct{ Workers, Jobs int }{{1, 500}, {8, 2000}, {64, 4000}}

// bench measures jobs that do nothing, in one process. The ways take turns, so that
// other load of the machine affects both.
func bench(ctx context.Context, p *Place, out io.Writer) error {
	return p.WithSchema(ctx, func(db *sqlx.DB, schema string) error {
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintf(table, "WORKERS\t(a) ADVISORY LOCK\t(b) SKIP LOCKED\t(a)/(b)\t\n")
		for _, load := range Loads {
			var a, b, ratio []float64
			for round := range rounds {
				rates := map[string]float64{}
				for _, way := range inTurn(round) {
					rate, err := measure(ctx, p, db, schema, way, load.Workers, load.Jobs)
					if err != nil {
						return err
					}
					rates[way] = rate
				}
				a, b = append(a, rates[Advisory]), append(b, rates[Skip])
				ratio = append(ratio, rates[Advisory]/rates[Skip])
			}
			fmt.Fprintf(table, "%d\t%.0f jobs/s\t%.0f jobs/s\t%.2f\t\n", load.Workers, median(a), median(b), median(ratio))
		}
		if err := table.Flush(); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "\nMedians of %d rounds in which the ways take turns, and of the ratios within a round. One process, jobs that do nothing,\n"+
			"database and workers on one machine.\n", rounds)
		return err
	})
}

// inTurn returns the ways, each first in every other round.
func inTurn(round int) []string {
	both := []string{Advisory, Skip}
	if round%2 == 1 {
		slices.Reverse(both)
	}
	return both
}

func median(values []float64) float64 {
	slices.SortFunc(values, cmp.Compare)
	return values[len(values)/2]
}

// measure returns the jobs per second of one way.
func measure(ctx context.Context, p *Place, setup *sqlx.DB, schema, way string, workers, jobs int) (rate float64, err error) {
	if err := execute(ctx, setup.DB, "TRUNCATE jobs, latchkey_fence"); err != nil {
		return 0, err
	}
	if _, err := setup.ExecContext(ctx, "INSERT INTO jobs (kind, priority) SELECT 'nothing', i % 3 FROM generate_series(1, $1::int) i", jobs); err != nil {
		return 0, err
	}
	if err := execute(ctx, setup.DB, "ANALYZE jobs"); err != nil {
		return 0, err
	}
	db, err := Connect(p.URL, schema, min(workers, 32)+2)
	if err != nil {
		return 0, err
	}
	defer db.Close()
	lockDB, err := Connect(p.URL, schema, 5)
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
		return 0, context.Cause(ctx) // an interrupt
	}
	return float64(jobs) / took.Seconds(), nil
}
