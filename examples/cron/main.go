package main

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/robfig/cron/v3"

	"github.com/latchkey-go/latchkey/sqllock"
)

// runInstance is the main function of a service with scheduled jobs: this file is the recipe.
func runInstance(ctx context.Context, f flags, out io.Writer) error {
	// A small *sql.DB for the locks alone: whatever fills the service's own pool cannot keep them from the
	// database.
	lockDB, err := openPool(os.Getenv("DATABASE_URL"))
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

	db, err := openPool(os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(5)

	clock := newSkewedClock(f.skew) // a service has time.Now, right to some seconds
	events := newEvents(out, f.instance)
	ns := namespace(f.demo) // elsewhere a constant: it keeps the jobs' names apart from the keys of other locks
	ticks := NewTicks(locks, db, ns, WithClock(clock.Now), WithObserver(events.observer()))
	w := &work{db: db, runs: runsName(f.demo), events: events, instance: f.instance}
	s := &service{clock: clock, ticks: ticks, locks: locks, ns: ns, events: events, work: w}

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // the parent holds the other end of that pipe: however it dies, the pipe ends
	}()
	return s.run(ctx)
}

// service is what an instance's schedulers share.
type service struct {
	clock  *skewedClock
	ticks  *Ticks
	locks  sqllock.Locker
	ns     sqllock.Namespace
	events *events
	work   *work
}

// run runs the jobs on three schedulers until ctx ends, and lets runs in flight come to their end.
func (s *service) run(ctx context.Context) error {
	running := context.WithoutCancel(ctx)
	crontab, err := s.robfig(running)
	if err != nil {
		return err
	}
	locking, err := s.gocronLocker()
	if err != nil {
		return err
	}
	elector := NewElector(s.locks, s.ns.Key("leader"), s.events.observer())
	electing, err := s.gocronElector(running, elector)
	if err != nil {
		return err
	}
	crontab.Start()
	locking.Start()
	electing.Start()
	s.events.send(event{What: ready})
	<-ctx.Done()
	err = errors.Join(locking.Shutdown(), leave(electing, elector))
	<-crontab.Stop().Done()
	return err
}

// leave shuts the elected scheduler down and lets another lead, unless a task is left that does not end: then
// the end of this process does.
func leave(s gocron.Scheduler, e *Elector) error {
	if err := s.Shutdown(); err != nil {
		return err
	}
	return e.Close()
}

// robfig is three jobs of robfig/cron.
func (s *service) robfig(ctx context.Context) (*cron.Cron, error) {
	c := cron.New()
	parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	for _, job := range []struct {
		name, schedule string
		work           JobFunc
	}{
		{steady, "CRON_TZ=UTC * * * * * *", func(ctx context.Context) { s.work.do(ctx, steady, 100*time.Millisecond) }},
		{slow, "CRON_TZ=UTC */2 * * * * *", func(ctx context.Context) { s.work.do(ctx, slow, 5*time.Second) }},
		{panics, "CRON_TZ=UTC */3 * * * * *", func(ctx context.Context) {
			s.work.do(ctx, panics, 100*time.Millisecond)
			panic("out of paper")
		}},
	} {
		schedule, err := parser.Parse(job.schedule)
		if err != nil {
			return nil, err
		}
		once := cron.NewChain(cron.Recover(s.events), Singleton(ctx, s.ticks, job.name, schedule))
		c.Schedule(s.clock.shift(schedule), once.Then(job.work)) // elsewhere: c.Schedule(schedule, …)
	}
	return c, nil
}

// gocronLocker is a job of gocron with a Locker. Instances should begin its interval at a tick, as gocron says,
// too: else those that start together come together, each by its own clock, for different ticks.
func (s *service) gocronLocker() (gocron.Scheduler, error) {
	scheduler, err := gocron.NewScheduler(gocron.WithClock(s.clock))
	if err != nil {
		return nil, err
	}
	const interval = 2 * time.Second
	locker := NewLocker(s.ticks, Every(interval))
	_, err = scheduler.NewJob(gocron.DurationJob(interval), gocron.NewTask(func(ctx context.Context) {
		// gocron ends a task's context when it is shut down: this work rather comes to its end.
		ctx, cancel := locker.Bind(context.WithoutCancel(ctx), locked)
		defer cancel()
		s.work.do(ctx, locked, 100*time.Millisecond)
	}), gocron.WithName(locked), gocron.WithDistributedJobLocker(locker),
		gocron.WithStartAt(gocron.WithStartDateTime(Every(interval).Next(s.clock.Now().Add(100*time.Millisecond)))))
	return scheduler, err
}

// gocronElector is a job of gocron that the leader runs.
func (s *service) gocronElector(ctx context.Context, elector *Elector) (gocron.Scheduler, error) {
	scheduler, err := gocron.NewScheduler(gocron.WithClock(s.clock), gocron.WithDistributedElector(elector))
	if err != nil {
		return nil, err
	}
	const expression = "CRON_TZ=UTC */2 * * * * *"
	schedule, err := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow).Parse(expression)
	if err != nil {
		return nil, err
	}
	_, err = scheduler.NewJob(gocron.CronJob(expression, true), gocron.NewTask(func(ctx context.Context) {
		ctx, cancel := elector.Bind(context.WithoutCancel(ctx))
		defer cancel()
		s.work.do(s.events.withTick(ctx, elected), elected, 100*time.Millisecond)
	}), gocron.WithName(elected), gocron.WithSingletonMode(gocron.LimitModeReschedule),
		gocron.WithEventListeners(OncePerTick(ctx, s.ticks, schedule)))
	return scheduler, err
}
