package main

import (
	"context"
	"database/sql"
	"time"
)

// The jobs' names.
const (
	steady  = "steady"
	slow    = "slow"
	panics  = "panics"
	locked  = "locked"
	elected = "elected"
)

// runsTable makes the table of a name that is the evidence: a row for each run. Nothing in it forbids two of one
// tick.
const runsTable = `CREATE TABLE %s (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job      text        NOT NULL,
	tick     timestamptz NOT NULL,
	instance integer     NOT NULL,
	began    timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended    timestamptz -- null: it died
)`

// work is what the jobs do: several transactions with time between them.
type work struct {
	db       *sql.DB
	runs     string // the table of them
	events   *events
	instance int
}

func (w *work) do(ctx context.Context, job string, takes time.Duration) {
	if err := w.steps(ctx, job, takes); err != nil {
		w.events.send(event{What: failed, Job: job, Why: withoutDriverText(err).Error()})
	}
}

func (w *work) steps(ctx context.Context, job string, takes time.Duration) error {
	tick, _ := TickFromContext(ctx)
	var id int64
	err := w.db.QueryRowContext(ctx, "INSERT INTO "+w.runs+" (job, tick, instance) VALUES ($1, $2, $3) RETURNING id",
		job, tick, w.instance).Scan(&id)
	if err != nil {
		return err
	}
	w.events.send(event{What: working, Job: job, Tick: tick})
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = w.db.ExecContext(ctx, "UPDATE "+w.runs+" SET ended = clock_timestamp() WHERE id = $1", id)
	if err == nil {
		w.events.send(event{What: worked, Job: job, Tick: tick})
	}
	return err
}
