package ticks

import (
	"context"

	"github.com/go-co-op/gocron/v2"
)

// Task returns a task for gocron. Of all instances that schedule a task of this
// name, one calls work at each tick of schedule. The job must be scheduled with the
// same schedule: Every(d) for a DurationJob of d, the parsed expression for a
// CronJob.
//
//	s.NewJob(gocron.DurationJob(time.Minute), ticks.Task(once, "report", ticks.Every(time.Minute), report))
//
// The context of work ends when the lock is lost. It does not end when the scheduler
// is shut down: gocron waits for the work, up to gocron.WithStopTimeout. gocron's own
// Locker knows neither the tick nor a context that ends with the lock.
//
// Task panics if the ticks of schedule depend on when it is asked.
func Task(ticks *Ticks, name string, schedule Schedule, work func(context.Context)) gocron.Task {
	inCommon := common(schedule)
	return gocron.NewTask(func(ctx context.Context) {
		_ = ticks.Do(context.WithoutCancel(ctx), name, inCommon, work) // it is logged
	})
}
