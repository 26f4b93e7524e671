package main

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Run is one run of a job, for one tick, under the job's lock. It is made by Ticks.Begin and ended with End.
type Run struct {
	Job   string
	Tick  time.Time // that it is for, by the schedule
	Began time.Time

	ticks    *Ticks
	schedule Schedule
	lock     *sqllock.Lock // nil where Ticks.Pass began it
}

// Bind is ctx for the work of the run: it also ends, with cause sqllock.ErrLost, when the lock is lost, and
// carries the lock, for sqllock.Fence, and the tick.
func (r *Run) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	return r.lock.Bind(context.WithValue(ctx, tickKey{}, r.Tick))
}

type tickKey struct{}

// TickFromContext is the tick that the work with this context is for, which is not the time at which it began:
// the day of a daily report.
func TickFromContext(ctx context.Context) (tick time.Time, ok bool) {
	tick, ok = ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// End gives the lock back. It fails with sqllock.ErrLost if it was lost before: another instance may have run
// the job beside this one's last steps.
func (r *Run) End() error { return r.end(false) }

func (r *Run) end(panicked bool) error {
	err := r.lock.Unlock()
	now := r.ticks.now()
	r.ticks.observer.end(Ended{
		Run: r, Took: now.Sub(r.Began), Outlived: dueBetween(r.schedule, r.Tick, now), Panicked: panicked, Err: err,
	})
	return err
}
