package ticks

import (
	"context"

	"github.com/robfig/cron/v3"
)

// Job returns a job for robfig/cron. Of all instances that schedule a job of this
// name, one calls work at each tick of schedule. The job must be scheduled with the
// same schedule:
//
//	schedule, err := cron.ParseStandard("CRON_TZ=UTC 0 3 * * *")
//	…
//	c.Schedule(schedule, cron.NewChain(cron.Recover(logger)).Then(ticks.Job(ctx, once, "report", schedule, report)))
//
// The context of work is ctx, and also ends when the lock is lost. A panic releases
// the lock and goes on to cron.Recover.
//
// Job panics if the ticks of schedule depend on when it is asked.
func Job(ctx context.Context, ticks *Ticks, name string, schedule cron.Schedule, work func(context.Context)) cron.Job {
	inCommon := common(schedule)
	return cron.FuncJob(func() { _ = ticks.Do(ctx, name, inCommon, work) }) // the error is logged
}
