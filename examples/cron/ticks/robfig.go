package ticks

import (
	"context"

	"github.com/robfig/cron/v3"
)

// Singleton returns a wrapper of robfig/cron. Of all instances that wrap a job of
// this name, one runs it at each tick of schedule. The job must be scheduled with
// the same schedule. A tick that another instance runs or has run is skipped.
//
// A job that is a ContextJob gets ctx, which also ends when the lock is lost. A
// panic releases the lock and goes on to cron.Recover, which stands outside, as
// all other wrappers do:
//
//	schedule, err := cron.ParseStandard("CRON_TZ=UTC 0 3 * * *")
//	…
//	c.Schedule(schedule, cron.NewChain(cron.Recover(logger), Singleton(ctx, ticks, "report", schedule)).Then(report))
//
// Singleton panics if the ticks of schedule depend on when it is asked.
func Singleton(ctx context.Context, ticks *Ticks, name string, schedule cron.Schedule) cron.JobWrapper {
	inCommon := common(schedule)
	return func(job cron.Job) cron.Job {
		return cron.FuncJob(func() {
			_ = ticks.Do(ctx, name, inCommon, func(ctx context.Context) { runJob(ctx, job) }) // it is logged
		})
	}
}

// A ContextJob is a job that can be ended. Any other job may go on while another
// instance has the lock.
type ContextJob interface {
	cron.Job
	RunContext(ctx context.Context)
}

// JobFunc is a ContextJob that is a function.
type JobFunc func(ctx context.Context)

// RunContext calls f.
func (f JobFunc) RunContext(ctx context.Context) { f(ctx) }

// Run calls f with a context that does not end. A scheduler calls it if the job
// is not wrapped in Singleton.
func (f JobFunc) Run() { f(context.Background()) }

func runJob(ctx context.Context, job cron.Job) {
	if job, ok := job.(ContextJob); ok {
		job.RunContext(ctx)
		return
	}
	job.Run()
}
