package ticks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A Run is one run of a job, for one tick, under the job's lock. Ticks.Begin
// returns it, and End ends it.
type Run struct {
	Job   string
	Tick  time.Time // the tick of the schedule that the run is for
	Began time.Time

	ticks    *Ticks
	schedule Schedule
	lock     *sqllock.Lock // nil where Ticks.Pass began it
}

// Bind returns ctx for the work of the run. It also ends when the lock is lost,
// with the cause sqllock.ErrLost. It carries the tick, and the lock for
// sqllock.Fence.
func (r *Run) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return r.lock.Bind(context.WithValue(ctx, tickKey{}, r.Tick))
}

type tickKey struct{}

// TickFromContext returns the tick that the work with this context is for, such
// as the day of a daily report. It is not the time at which the work began.
func TickFromContext(ctx context.Context) (tick time.Time, ok bool) {
	tick, ok = ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// End releases the lock. It returns sqllock.ErrLost if the lock was lost before:
// another instance may have run the job while this run made its last steps.
func (r *Run) End() error { return r.end(false) }

func (r *Run) end(panicked bool) error {
	err := r.lock.Unlock()
	now := r.ticks.now()
	r.ticks.observer.end(Ended{
		Run: r, Took: now.Sub(r.Began), Outlived: dueBetween(r.schedule, r.Tick, now), Panicked: panicked, Err: err,
	})
	return err
}

// An Observer is called when a run begins or ends, and when a tick is rejected.
// The goroutine that runs the job calls it, so its functions should be quick.
// Each may be nil.
type Observer struct {
	Began    func(*Run)
	Ended    func(Ended)
	Rejected func(Rejected)
}

// Ended is a run that has ended.
type Ended struct {
	*Run

	Took     time.Duration
	Outlived int   // how many later ticks were due before it ended, and were skipped
	Panicked bool  // only where Ticks.Do ran it
	Err      error // of releasing the lock: sqllock.ErrLost if it was lost during the run
}

// Rejected is a tick that this instance does not run. Another instance may run it.
type Rejected struct {
	Job  string    // "" if an Elector could not find out which instance leads: then it is all jobs
	Tick time.Time // zero if none is due
	Err  error     // of Begin, Pass or IsLeader
}

func (o *Observer) begin(r *Run) {
	if o.Began != nil {
		o.Began(r)
	}
}

func (o *Observer) end(e Ended) {
	if o.Ended != nil {
		o.Ended(e)
	}
}

// reject calls o, and returns err.
func (o *Observer) reject(job string, tick time.Time, err error) error {
	if o.Rejected != nil {
		o.Rejected(Rejected{job, tick, err})
	}
	return err
}

// Logged returns an Observer that logs. The level is
//
//   - error for what keeps this instance from running ticks,
//   - warning for a run that outlived its tick, lost its lock or panicked,
//   - debug for a tick that another instance runs.
func Logged(log *slog.Logger) Observer {
	return Observer{
		Ended: func(e Ended) {
			if e.Outlived > 0 || e.Panicked || e.Err != nil {
				log.Warn("cron: a run did not end well", "job", e.Job, "tick", e.Tick, "took", e.Took,
					"skipped", e.Outlived, "panicked", e.Panicked, "error", e.Err)
			}
		},
		Rejected: func(r Rejected) {
			level := slog.LevelError
			if errors.Is(r.Err, sqllock.ErrHeld) || errors.Is(r.Err, watermark.ErrPassed) {
				level = slog.LevelDebug
			}
			log.Log(context.Background(), level, "cron: this instance does not run a tick", "job", r.Job, "tick", r.Tick, "error", r.Err)
		},
	}
}

// withoutDriverText returns err without the driver's text, which may name hosts
// and users: sqllock.ErrUnavailable, the context's error, or the server's
// SQLSTATE.
func withoutDriverText(err error) error {
	var coded interface{ SQLState() string }
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.As(err, &coded):
		return errors.New("SQLSTATE " + coded.SQLState())
	}
	return sqllock.ErrUnavailable
}
