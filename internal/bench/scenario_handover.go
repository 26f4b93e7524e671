package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/bench/results"
	"github.com/latchkey-go/latchkey/internal/bench/waiters"
)

const (
	handOverProcesses = 4
	handOverKeys      = 16 // with a caller each in each process
)

// handOver measures how long a key takes from its release in one process to the
// grant in another. The rate is of grants. An Extra has what that costs.
//
//	server share  of one processor that the server used
//	xids/s        transaction ids used up
//	commits/s     of the server, about the statements
func handOver(ctx context.Context, b *bench) error {
	measure := waitingMeasure
	if b.plan.quick {
		measure = waitingMeasureQuick
	}
	var contestants []contestant
	for _, hold := range []time.Duration{500 * time.Microsecond, 5 * time.Millisecond, 50 * time.Millisecond, time.Second} {
		orders := waiters.Config{
			Postgres: b.env.Postgres, Callers: handOverKeys, Keys: handOverKeys, Connections: handOverKeys,
			Hold: hold, Apart: true, WarmUp: b.plan.warmUp, Measure: measure,
		}
		for _, c := range []struct{ name, how string }{
			{"latchkey, Session.Lock", waiters.Session},
			{"the same without its socket", waiters.Unwatched},
			{"pg_advisory_lock, a connection each", waiters.AdvisoryLock},
		} {
			orders := orders
			orders.How = c.how
			contestants = append(contestants, contestant{
				name: c.name, variant: fmt.Sprintf("held for %v", hold), x: handOverProcesses * handOverKeys,
				measure: func(ctx context.Context) (results.Round, error) { return b.measureHandOver(ctx, orders) },
			})
		}
	}
	return b.interleave(ctx, "hand-over", contestants)
}

func (b *bench) measureHandOver(ctx context.Context, orders waiters.Config) (results.Round, error) {
	before, err := countTransactions(ctx, b.env.Postgres)
	if err != nil {
		return results.Round{}, err
	}
	began := time.Now()
	var server time.Duration
	o, err := waiters.Run(ctx, orders, handOverProcesses, func() { server = b.serverTime(orders.WarmUp, orders.Measure) })
	if err != nil {
		return results.Round{}, err
	}
	after, err := countTransactions(ctx, b.env.Postgres)
	if err != nil {
		return results.Round{}, err
	}
	total, took := o.Total(), time.Since(began).Seconds()
	if total == 0 || o.HandOvers.TotalCount() == 0 {
		return results.Round{}, errors.New("no lock went from process to process: " + o.First)
	}
	return results.Round{
		Rate:      float64(total) / o.Elapsed.Seconds(),
		P50:       time.Duration(o.HandOvers.ValueAtQuantile(50)),
		P99:       time.Duration(o.HandOvers.ValueAtQuantile(99)),
		ClientCPU: o.CPU / time.Duration(total),
		ServerCPU: server / time.Duration(total),
		Errors:    o.Errors,
		Extra: map[string]float64{
			"server share": server.Seconds() / orders.Measure.Seconds(),
			"xids/s":       float64(after.ids-before.ids) / took,
			"commits/s":    float64(after.commits-before.commits) / took,
		},
	}, nil
}

// transactions counts those of a server, since its start.
type transactions struct{ ids, commits int64 }

func countTransactions(ctx context.Context, dsn string) (n transactions, err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return n, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, `SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
		(SELECT sum(xact_commit) FROM pg_stat_database)`).Scan(&n.ids, &n.commits)
	return n, err
}
