package integrations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/latchkey-go/latchkey/examples/integrations/gocronlock"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// lead runs a scheduler while this instance leads. The context of its jobs ends
// when this instance no longer leads.
func lead(ctx context.Context, report func(context.Context)) error {
	scheduler, err := gocron.NewScheduler()
	if err != nil {
		return err
	}
	_, err = scheduler.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(report),
		gocron.WithContext(ctx), gocron.WithStartAt(gocron.WithStartImmediately()))
	if err == nil {
		scheduler.Start()
		<-ctx.Done()
	}
	return errors.Join(err, scheduler.Shutdown()) // waits for jobs, up to 10 s
}

// Without an adapter, only the leader has a scheduler.
func Example_gocronLeader() {
	ctx, cancel := context.WithCancel(context.Background())
	locks := sqllock.NewMemory() // a service has a *sqllock.Session
	report := func(ctx context.Context) {
		lock, _ := sqllock.FromContext(ctx)
		fmt.Println("the leader sends the report:", lock.Err() == nil)
		locks.Lose()
		<-ctx.Done()
		fmt.Println("the job ends:", lock.Err() != nil)
		cancel()
	}
	campaign := election.New(locks, sqllock.Namespace("leader").Key("jobs"))
	err := campaign.Run(ctx, func(ctx context.Context) error { return lead(ctx, report) })
	fmt.Println(err)
	// Output:
	// the leader sends the report: true
	// the job ends: true
	// context canceled
}

// A cron is several schedulers with the same job, which runs when they start and
// then hourly. A run lasts until finish is closed. A cron is a gocron.Monitor.
type cron struct {
	finish           chan struct{}
	started, skipped atomic.Int32 // runs
}

func (c *cron) IncrementJob(_ uuid.UUID, _ string, _ []string, status gocron.JobStatus) {
	if status == gocron.Skip {
		c.skipped.Add(1)
	}
}

func (c *cron) RecordJobTiming(time.Time, time.Time, uuid.UUID, string, []string) {}

// start starts a scheduler with its job. The end of the test shuts it down.
func (c *cron) start(t *testing.T, scheduler []gocron.SchedulerOption, job ...gocron.JobOption) {
	s := must(gocron.NewScheduler(append(scheduler, gocron.WithMonitor(c), gocron.WithStopTimeout(time.Minute))...))
	t.Cleanup(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
	task := gocron.NewTask(func() {
		c.started.Add(1)
		<-c.finish
	})
	job = append(job, gocron.WithName("report"), gocron.WithStartAt(gocron.WithStartImmediately()))
	must(s.NewJob(gocron.DurationJob(time.Hour), task, job...))
	s.Start()
}

// three starts three schedulers, and checks that so many of them run the job while
// the others skip it. gocron does not export its tests of distributed schedulers:
// these are their cases, in our words.
func three(t *testing.T, runs int32, start func(c *cron)) {
	c := &cron{finish: make(chan struct{})}
	defer close(c.finish)
	for range 3 {
		start(c)
	}
	lockertest.Eventually(t, "every scheduler has run or skipped the job", func() bool {
		return c.started.Load()+c.skipped.Load() == 3
	})
	if c.started.Load() != runs {
		t.Errorf("%d schedulers run the job, and %d skip it; want %d", c.started.Load(), c.skipped.Load(), runs)
	}
}

func withLocker(fleet fleet) []gocron.SchedulerOption {
	return []gocron.SchedulerOption{gocron.WithDistributedLocker(gocronlock.NewLocker(fleet(), "jobs"))}
}

// After the run the lock is free, also for a scheduler whose clock is late.
func gocronLocker(t *testing.T, fleet fleet) {
	three(t, 1, func(c *cron) { c.start(t, withLocker(fleet)) })
	late := fleet()
	lockertest.Eventually(t, "the lock is free", func() bool {
		lock, err := late.TryLock(t.Context(), sqllock.Namespace("jobs").Key("report"))
		return err == nil && lock.Unlock() == nil
	})
}

func gocronJobLocker(t *testing.T, fleet fleet) {
	three(t, 1, func(c *cron) {
		c.start(t, nil, gocron.WithDistributedJobLocker(gocronlock.NewLocker(fleet(), "jobs")))
	})
}

func gocronNoLocker(t *testing.T, fleet fleet) {
	three(t, 3, func(c *cron) { c.start(t, withLocker(fleet), gocron.WithDisabledDistributedJobLocker(true)) })
}

func gocronElector(t *testing.T, fleet fleet) {
	electors := []*gocronlock.Elector{stand(t, fleet()), stand(t, fleet()), stand(t, fleet())}
	lockertest.Eventually(t, "one leads", func() bool {
		return slices.ContainsFunc(electors, func(e *gocronlock.Elector) bool { return e.IsLeader(t.Context()) == nil })
	})
	three(t, 1, func(c *cron) {
		c.start(t, []gocron.SchedulerOption{gocron.WithDistributedElector(electors[0])})
		electors = electors[1:]
	})
}

// stand runs an Elector until the test ends, and after its schedulers.
func stand(t *testing.T, locks sqllock.Locker) *gocronlock.Elector {
	t.Helper()
	e := gocronlock.NewElector(locks, sqllock.Namespace("leader").Key("jobs"), election.WithBackoff(time.Hour, time.Hour))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	return e
}

// A scheduler that loses its lock does not lead from that moment.
func TestGocronLeaderLoses(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	e := stand(t, locks)
	lockertest.Eventually(t, "it leads", func() bool { return e.IsLeader(t.Context()) == nil })
	locks.Lose()
	if err := e.IsLeader(t.Context()); err != gocronlock.ErrNotLeader {
		t.Errorf("after a loss: %v", err)
	}
}
