// Cron shows scheduled jobs on robfig/cron and gocron: every instance of a
// service schedules them, and one instance runs each tick. `go run .` starts
// four instances whose clocks differ, and kills two of them in a run. It prints
// for each tick which instance ran it and which were rejected. This takes 20
// seconds.
//
// The recipe is this file and package ticks. Package internal/demo starts the
// instances and supplies the work of the jobs.
package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/examples/cron/internal/demo"
	"github.com/latchkey-go/latchkey/examples/cron/ticks"
	"github.com/latchkey-go/latchkey/sqllock"
)

func main() { demo.Main(instance) }

// instance is one instance of the service. It runs jobs until ctx ends, and waits
// for those in flight.
func instance(ctx context.Context, d *demo.Instance) error {
	// Open. The locks have a pool of their own, so that a busy service cannot keep
	// them from the database. The marks of the ticks are in the service's pool.
	lockDB, err := sql.Open("pgx", d.DatabaseURL)
	if err != nil {
		return err
	}
	defer lockDB.Close()
	lockDB.SetMaxOpenConns(3)
	locks, err := sqllock.Open(ctx, lockDB)
	if err != nil {
		return err
	}
	defer locks.Close()
	db, err := sql.Open("pgx", d.DatabaseURL)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(5)

	// A service leaves the options out: its clock is time.Now, and it logs.
	once := ticks.New(locks, db, d.Namespace, ticks.WithClock(d.Clock.Now), ticks.WithObserver(d.Observer()))
	elector := ticks.NewElector(locks, d.Namespace.Key("leader"), d.Observer())

	// Jobs end when their lock is lost, and not when the service shuts down.
	running := context.WithoutCancel(ctx)
	crontab, err := withRobfig(running, once, d)
	if err != nil {
		return err
	}
	locking, err := withLocker(once, d)
	if err != nil {
		return err
	}
	electing, err := withElector(running, once, elector, d)
	if err != nil {
		return err
	}
	crontab.Start()
	locking.Start()
	electing.Start()
	d.Ready()

	// Shut down: first the schedulers, then the locks.
	<-ctx.Done()
	err = errors.Join(locking.Shutdown(), elector.Shutdown(electing))
	<-crontab.Stop().Done()
	return err
}

// withRobfig schedules three jobs with robfig/cron. Recover stands outside of
// Singleton, which releases the lock of a job that panics.
func withRobfig(ctx context.Context, once *ticks.Ticks, d *demo.Instance) (*cron.Cron, error) {
	c := cron.New()
	for _, job := range []struct {
		name, schedule string
		work           ticks.JobFunc
	}{
		{demo.Steady, "CRON_TZ=UTC * * * * * *", d.Work(demo.Steady, 100*time.Millisecond)},
		{demo.Slow, "CRON_TZ=UTC */2 * * * * *", d.Work(demo.Slow, 5*time.Second)},
		{demo.Panics, "CRON_TZ=UTC */3 * * * * *", func(ctx context.Context) {
			d.Work(demo.Panics, 100*time.Millisecond)(ctx)
			panic("out of paper")
		}},
	} {
		schedule, err := seconds.Parse(job.schedule)
		if err != nil {
			return nil, err
		}
		chain := cron.NewChain(cron.Recover(d), ticks.Singleton(ctx, once, job.name, schedule))
		c.Schedule(d.Clock.Shift(schedule), chain.Then(job.work)) // a service: c.Schedule(schedule, …)
	}
	return c, nil
}

// seconds parses cron expressions with seconds.
var seconds = cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// withLocker schedules a job with gocron and a Locker. gocron counts intervals
// from the instance's start. Let them begin at a tick: instances that start
// together and have different clocks would otherwise come for different ticks.
func withLocker(once *ticks.Ticks, d *demo.Instance) (gocron.Scheduler, error) {
	scheduler, err := gocron.NewScheduler(gocron.WithClock(d.Clock))
	if err != nil {
		return nil, err
	}
	const interval = 2 * time.Second
	locker := ticks.NewLocker(once, ticks.Every(interval))
	start := ticks.Every(interval).Next(d.Clock.Now().Add(100 * time.Millisecond))
	_, err = scheduler.NewJob(gocron.DurationJob(interval), gocron.NewTask(func(ctx context.Context) {
		// gocron ends a task's context at shutdown. This task finishes its work.
		ctx, cancel := locker.Bind(context.WithoutCancel(ctx), demo.Locked)
		defer cancel()
		d.Work(demo.Locked, 100*time.Millisecond)(ctx)
	}), gocron.WithName(demo.Locked), gocron.WithDistributedJobLocker(locker),
		gocron.WithStartAt(gocron.WithStartDateTime(start)))
	return scheduler, err
}

// withElector schedules a job with gocron that the leader runs. OncePerTick keeps
// the next leader, whose clock may be behind, from running a tick again.
func withElector(ctx context.Context, once *ticks.Ticks, elector *ticks.Elector, d *demo.Instance) (gocron.Scheduler, error) {
	scheduler, err := gocron.NewScheduler(gocron.WithClock(d.Clock), gocron.WithDistributedElector(elector))
	if err != nil {
		return nil, err
	}
	const expression = "CRON_TZ=UTC */2 * * * * *"
	schedule, err := seconds.Parse(expression)
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.CronJob(expression, true), gocron.NewTask(func(ctx context.Context) {
		ctx, cancel := elector.Bind(context.WithoutCancel(ctx))
		defer cancel()
		d.Work(demo.Elected, 100*time.Millisecond)(ctx)
	}), gocron.WithName(demo.Elected), gocron.WithSingletonMode(gocron.LimitModeReschedule),
		gocron.WithEventListeners(ticks.OncePerTick(ctx, once, schedule)))
	return scheduler, err
}
