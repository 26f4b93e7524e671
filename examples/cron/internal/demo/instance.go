package demo

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/examples/cron/ticks"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// The jobs' names.
const (
	Steady  = "steady"
	Slow    = "slow"
	Panics  = "panics"
	Locked  = "locked"
	Elected = "elected"
)

// role is the role of an instance, and orders are what it needs.
const role = "instance"

type orders struct {
	Number int
	Demo   string // the demonstration's name
	Skew   time.Duration
	URL    string
}

// An Instance is what the demonstration adds to an instance of the service. It
// has a wrong clock and work that leaves a row for each run, and reports all
// that happens.
type Instance struct {
	DatabaseURL string
	Namespace   sqllock.Namespace // a service has a constant
	Clock       *skew.Clock       // a service has time.Now

	orders orders
	db     *sql.DB

	mu  sync.Mutex // protects what follows
	out *json.Encoder
	at  map[string]time.Time // the last tick of a job that began here
}

func runInstance(ctx context.Context, o orders, run func(context.Context, *Instance) error) error {
	db, err := openPool(o.URL)
	if err != nil {
		return err
	}
	defer db.Close()
	return run(ctx, &Instance{
		DatabaseURL: o.URL, Namespace: namespace(o.Demo), Clock: skew.NewClock(o.Skew),
		orders: o, db: db, out: json.NewEncoder(os.Stdout), at: map[string]time.Time{},
	})
}

// runsTable makes a table with a row for each run. Nothing in it forbids two runs
// of one tick.
const runsTable = `CREATE TABLE %s (
	id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	job      text        NOT NULL,
	tick     timestamptz NOT NULL,
	instance integer     NOT NULL,
	began    timestamptz NOT NULL DEFAULT clock_timestamp(),
	ended    timestamptz -- null: its instance was killed
)`

// Work returns the work of a job: it takes a while, between two transactions.
func (i *Instance) Work(job string, takes time.Duration) func(context.Context) {
	return func(ctx context.Context) {
		if err := i.work(ctx, job, takes); err != nil {
			i.send(event{What: failed, Job: job, Why: withoutDriverText(err).Error()})
		}
	}
}

func (i *Instance) work(ctx context.Context, job string, takes time.Duration) error {
	tick, ok := ticks.TickFromContext(ctx)
	if !ok { // gocron's task under an Elector does not know its tick
		tick = i.lastTick(job)
	}
	runs := runsName(i.orders.Demo)
	var id int64
	err := i.db.QueryRowContext(ctx, "INSERT INTO "+runs+" (job, tick, instance) VALUES ($1, $2, $3) RETURNING id",
		job, tick, i.orders.Number).Scan(&id)
	if err != nil {
		return err
	}
	i.send(event{What: working, Job: job, Tick: tick})
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, err = i.db.ExecContext(ctx, "UPDATE "+runs+" SET ended = clock_timestamp() WHERE id = $1", id)
	if err == nil {
		i.send(event{What: worked, Job: job, Tick: tick})
	}
	return err
}

// Ready reports that the schedulers run.
func (i *Instance) Ready() { i.send(event{What: ready}) }

// Observer reports runs and rejections.
func (i *Instance) Observer() ticks.Observer {
	return ticks.Observer{
		Began: func(r *ticks.Run) { i.send(event{What: began, Job: r.Job, Tick: r.Tick}) },
		Ended: func(r ticks.Ended) {
			i.send(event{What: ended, Job: r.Job, Tick: r.Tick, Took: r.Took, Outlived: r.Outlived})
		},
		Rejected: func(r ticks.Rejected) { i.send(event{What: rejected, Job: r.Job, Tick: r.Tick, Why: inShort(r.Err)}) },
	}
}

// Info ignores what robfig/cron logs.
func (*Instance) Info(string, ...any) {}

// Error reports a panic: Instance is the logger of cron.Recover.
func (i *Instance) Error(err error, message string, _ ...any) {
	i.send(event{What: panicked, Why: message + ": " + err.Error()})
}

func (i *Instance) send(e event) {
	e.Instance = i.orders.Number
	i.mu.Lock()
	defer i.mu.Unlock()
	if e.What == began {
		i.at[e.Job] = e.Tick
	}
	_ = i.out.Encode(e) // if the parent has ended, this process ends too
}

func (i *Instance) lastTick(job string) time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.at[job]
}

func inShort(err error) string {
	switch {
	case errors.Is(err, sqllock.ErrHeld):
		return held
	case errors.Is(err, watermark.ErrPassed):
		return passed
	}
	return err.Error()
}

// withoutDriverText returns an error that names neither hosts nor users.
func withoutDriverText(err error) error {
	var coded interface{ SQLState() string }
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &coded):
		return fmt.Errorf("SQLSTATE %s", coded.SQLState())
	}
	return sqllock.ErrUnavailable
}
