package main

import (
	"context"
	"sync"

	"github.com/go-co-op/gocron/v2"
)

// Locker is gocron's Locker for jobs of one schedule: of all instances one runs a job at each tick. gocron
// tells a Locker the job's name and not the tick it is for, and warns of clocks that differ; this one works the
// tick out of the schedule, and remembers it. Give each job its own, and a name, which is otherwise the
// function's:
//
//	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(report), gocron.WithName("report"),
//		gocron.WithDistributedJobLocker(NewLocker(ticks, Every(time.Minute))))
//
// gocron's own listener AfterLockError is told why a tick is skipped, and so is Ticks' Observer.
type Locker struct {
	ticks    *Ticks
	schedule Schedule

	mu      sync.Mutex // protects running
	running map[string]*Run
}

// NewLocker makes a Locker for jobs of one schedule: Every(d) for a DurationJob of d, the parsed expression for
// a CronJob. It panics if the ticks of schedule depend on when it is asked.
func NewLocker(ticks *Ticks, schedule Schedule) *Locker {
	return &Locker{ticks: ticks, schedule: common(schedule), running: map[string]*Run{}}
}

// Lock begins a run of the job named key, as Ticks.Begin does.
func (l *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	run, err := l.ticks.Begin(ctx, key, l.schedule)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running[key] = run
	return &runLock{l, run}, nil
}

// Bind is ctx for the work of the job named key: gocron's task has no other way to hear that the lock is lost.
// It also ends then, with cause sqllock.ErrLost. Call it first in the task; outside a run it is ctx.
func (l *Locker) Bind(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	run := l.running[key]
	l.mu.Unlock()
	if run == nil {
		return context.WithCancel(ctx)
	}
	return run.Bind(ctx)
}

// A runLock is what gocron gives back when the run has ended, by a panic, too.
type runLock struct {
	locker *Locker
	run    *Run
}

// Unlock ends the run. It is not bound to ctx, which has ended when the scheduler is shut down.
func (r *runLock) Unlock(context.Context) error {
	l := r.locker
	l.mu.Lock()
	if l.running[r.run.Job] == r.run {
		delete(l.running, r.run.Job)
	}
	l.mu.Unlock()
	return r.run.End()
}
