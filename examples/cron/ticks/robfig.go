package main

import (
	"context"

	"github.com/robfig/cron/v3"
)

// Singleton is a wrapper of robfig/cron: of all instances that wrap a job of this name one runs it at each tick
// of schedule, which is the one that the job is scheduled with. A tick that another has run, or is running, is
// skipped without a word but to Ticks' Observer.
//
// The job gets a context, ctx that also ends when the lock is lost, if it is a ContextJob. A panic gives the
// lock back and goes on, to cron.Recover: that belongs outside, and all other wrappers, too.
//
//	schedule, err := cron.ParseStandard("CRON_TZ=UTC 0 3 * * *")
//	…
//	c.Schedule(schedule, cron.NewChain(cron.Recover(logger), Singleton(ctx, ticks, "report", schedule)).Then(report))
//
// It panics if the ticks of schedule depend on when it is asked.
func Singleton(ctx context.Context, ticks *Ticks, name string, schedule cron.Schedule) cron.JobWrapper {
	inCommon := common(schedule)
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			_ = ticks.Do(ctx, name, inCommon, func(ctx context.Context) { runJob(ctx, job) }) // the Observer has it
		})
	}
}

// A ContextJob is a job whose work can be ended. Work that cannot may go on when another instance has the lock.
type ContextJob interface {
	cron.Job
	RunContext(ctx context.Context)
}

// JobFunc is a ContextJob that is a function.
type JobFunc func(ctx context.Context)

// RunContext calls f.
func (f JobFunc) RunContext(ctx context.Context) { f(ctx) }

// Run calls f with a context that does not end: what is not wrapped in Singleton.
func (f JobFunc) Run() { f(context.Background()) }

func runJob(ctx context.Context, job cron.Job) {
	if job, ok := job.(ContextJob); ok {
		job.RunContext(ctx)
		return
	}
	job.Run()
}
