package ticks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// interval is that of the tests' jobs.
const interval = 200 * time.Millisecond

// scheduler is one of an instance with clock.
func scheduler(t *testing.T, clock *skew.Clock, opts ...gocron.SchedulerOption) gocron.Scheduler {
	t.Helper()
	s, err := gocron.NewScheduler(append(opts, gocron.WithClock(clock))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Shutdown() })
	return s
}

func newJob(t *testing.T, s gocron.Scheduler, task any, opts ...gocron.JobOption) {
	t.Helper()
	if _, err := s.NewJob(gocron.DurationJob(interval), gocron.NewTask(task), append(opts, gocron.WithName("report"))...); err != nil {
		t.Fatal(err)
	}
}

func atLeast(t *testing.T, told *record, ended, refused int) {
	t.Helper()
	lockertest.Eventually(t, "enough ticks were run and refused", func() bool {
		told.mu.Lock()
		defer told.mu.Unlock()
		return len(told.ended) >= ended && len(told.refused) >= refused
	})
}

// Instances of gocron whose clocks differ, and which started at different
// moments, run each tick once.
func TestLocker(test *testing.T) {
	t := onDatabase(test)
	var (
		told record
		runs atomic.Int64
	)
	for _, by := range []time.Duration{0, 530 * time.Millisecond, -1170 * time.Millisecond} {
		clock := skew.NewClock(by)
		s := scheduler(t.T, clock)
		newJob(t.T, s, func() { runs.Add(1) },
			gocron.WithDistributedJobLocker(NewLocker(t.instance(WithClock(clock.Now), WithObserver(told.observer())), Every(interval))))
		s.Start()
	}
	atLeast(t.T, &told, 6, 6)
	told.once(t.T, Every(interval))
	if runs.Load() < 6 {
		t.Errorf("the job was run %d times", runs.Load())
	}
}

// A run that outlives its tick keeps the lock: gocron would start another
// beside it.
func TestLockerOutlived(test *testing.T) {
	t := onDatabase(test)
	var (
		told             record
		running, overlap atomic.Int64
	)
	clock := skew.NewClock(0)
	locker := NewLocker(t.instance(WithClock(clock.Now), WithObserver(told.observer())), Every(interval))
	s := scheduler(t.T, clock)
	held := func() int {
		told.mu.Lock()
		defer told.mu.Unlock()
		n := 0
		for _, r := range told.refused {
			if errors.Is(r.Err, sqllock.ErrHeld) {
				n++
			}
		}
		return n
	}
	newJob(t.T, s, func(ctx context.Context) {
		overlap.Add(running.Add(1) - 1)
		defer running.Add(-1)
		// A run may begin a little before its tick: the third refusal is
		// certainly after the second tick later.
		for before := held(); held() < before+3 && ctx.Err() == nil; {
			time.Sleep(time.Millisecond) // polling: the refusals end the run
		}
	}, gocron.WithDistributedJobLocker(locker))
	s.Start()
	atLeast(t.T, &told, 2, 4)
	if n := overlap.Load(); n > 0 {
		t.Errorf("%d runs were beside another", n)
	}
	told.mu.Lock()
	defer told.mu.Unlock()
	if e := told.ended[0]; e.Outlived < 2 {
		t.Errorf("the observer was told of a run that outlived %d ticks, want 2", e.Outlived)
	}
}

// The work hears that the lock is lost by way of the Locker, and a panic gives
// the lock back.
func TestLockerLossAndPanic(test *testing.T) {
	t := onDatabase(test)
	var told record
	clock := skew.NewClock(0)
	locker := NewLocker(t.instance(WithClock(clock.Now), WithObserver(told.observer())), Every(interval))
	s := scheduler(t.T, clock)
	var (
		causes   = make(chan error, 1)
		panicked atomic.Int64
		first    atomic.Bool
	)
	newJob(t.T, s, func(ctx context.Context) {
		if first.CompareAndSwap(false, true) {
			bound, cancel := locker.Bind(ctx, "report")
			defer cancel()
			t.cut()
			<-bound.Done()
			causes <- context.Cause(bound)
		}
		panic("out of paper")
	}, gocron.WithDistributedJobLocker(locker),
		gocron.WithEventListeners(gocron.AfterJobRunsWithPanic(func(uuid.UUID, string, any) { panicked.Add(1) })))
	s.Start()
	if cause := <-causes; cause != sqllock.ErrLost {
		t.Errorf("the work's context ended with %v, want ErrLost", cause)
	}
	lockertest.Eventually(t.T, "it panics, tick for tick", func() bool { return panicked.Load() >= 3 })
	if err := s.Shutdown(); err != nil {
		t.Error(err)
	}
	if n := t.locks(); n != 0 {
		t.Errorf("%d locks are held", n)
	}
	told.once(t.T, Every(interval))
	if bound, cancel := locker.Bind(t.Context(), "report"); bound.Err() != nil {
		t.Error("outside a run Bind's context has ended")
	} else {
		cancel()
	}
}
