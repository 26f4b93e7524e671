package ticks

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/latchkey-go/latchkey/examples/cron/internal/skew"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// The leader runs all ticks. The next leader has a clock that is behind, and
// comes to ticks that the last leader has run.
func TestElector(test *testing.T) {
	t := onDatabase(test)
	type member struct {
		elector *Elector
		s       gocron.Scheduler
		told    record
		runs    atomic.Int64
	}
	join := func(by time.Duration) *member {
		clock := skew.NewClock(by)
		m := &member{elector: NewElector(t.session(), key("leader"), Observer{})}
		m.s = scheduler(t.T, clock, gocron.WithDistributedElector(m.elector))
		newJob(t.T, m.s, func() { m.runs.Add(1) }, gocron.WithEventListeners(
			OncePerTick(t.Context(), t.instance(WithClock(clock.Now), WithObserver(m.told.observer())), Every(interval))))
		m.s.Start()
		return m
	}
	runs := func(m *member) int { return len(m.told.perTick()) }
	ahead := join(500 * time.Millisecond)
	lockertest.Eventually(t.T, "the first leads", func() bool { return runs(ahead) >= 2 })
	behind := join(0)
	lockertest.Eventually(t.T, "it goes on", func() bool { return runs(ahead) >= 4 })
	if n := runs(behind); n > 0 {
		t.Errorf("an instance that does not lead has run %d ticks", n)
	}
	if err := behind.elector.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("IsLeader beside a leader: %v, want ErrHeld", err)
	}
	if err := ahead.elector.Shutdown(ahead.s); err != nil {
		t.Fatal(err)
	}
	if err := ahead.elector.IsLeader(t.Context()); err != sqllock.ErrClosed {
		t.Errorf("IsLeader after Close: %v, want ErrClosed", err)
	}
	lockertest.Eventually(t.T, "the second leads, and comes to ticks of its own", func() bool { return runs(behind) >= 2 })
	if err := behind.s.Shutdown(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []*member{ahead, behind} {
		if n := int(m.runs.Load()); n != len(m.told.began) {
			t.Errorf("%d runs for %d ticks that were passed", n, len(m.told.began))
		}
	}
	all := record{began: append(ahead.told.began, behind.told.began...)}
	all.once(t.T, Every(interval))
}

// Two jobs that are due at once ask at once. Neither mistakes the other's lock
// for the lock of another instance.
func TestElectorAskedAtOnce(test *testing.T) {
	t := onDatabase(test)
	locker := t.session()
	for range 5 {
		e := NewElector(locker, key("leader"), Observer{})
		answers := make(chan error)
		for range 4 {
			go func() { answers <- e.IsLeader(t.Context()) }()
		}
		for range 4 {
			if err := <-answers; err != nil {
				t.Errorf("IsLeader: %v", err)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// An instance that loses the lock does not lead any more. The contexts of its
// tasks end, and later it asks again.
func TestElectorLoss(test *testing.T) {
	t := onDatabase(test)
	var told record
	e := NewElector(t.session(), key("leader"), told.observer())
	unled, cancelUnled := e.Bind(t.Context())
	defer cancelUnled()
	if err := e.IsLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	bound, cancel := e.Bind(t.Context())
	defer cancel()
	t.cut()
	<-bound.Done()
	if cause := context.Cause(bound); cause != sqllock.ErrLost || unled.Err() != nil {
		t.Errorf("a task's context ended with %v, want ErrLost; one of no leader with %v", cause, unled.Err())
	}
	lockertest.Eventually(t.T, "it leads again", func() bool { return e.IsLeader(t.Context()) == nil })
	ended, end := context.WithCancel(t.Context())
	end()
	e.turn <- struct{}{}
	if err := e.IsLeader(ended); err != context.Canceled {
		t.Errorf("IsLeader in a queue, with an ended context: %v", err)
	}
	<-e.turn
	if n := len(told.refused); n == 0 || told.refused[n-1] != (Rejected{Err: context.Canceled}) {
		t.Errorf("the observer was told %v, want the last refusal", told.refused)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A rejection is reported each time, unless another instance leads.
func TestElectorTells(t *testing.T) {
	t.Parallel()
	for _, err := range []error{sqllock.ErrHeld, sqllock.ErrUnavailable, sqllock.ErrCapacity} {
		var told record
		e := NewElector(refusing{err}, key("leader"), told.observer())
		for range 2 {
			if got := e.IsLeader(t.Context()); got != err {
				t.Errorf("IsLeader: %v, want %v", got, err)
			}
		}
		if err == sqllock.ErrHeld && len(told.refused) != 0 {
			t.Errorf("told of another's leadership: %v", told.refused)
		}
		if err != sqllock.ErrHeld && (len(told.refused) != 2 || told.refused[0] != (Rejected{Err: err})) {
			t.Errorf("%v: told %v", err, told.refused)
		}
	}
}

// refusing is a Locker that grants no lock.
type refusing struct{ err error }

func (r refusing) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, r.err }
func (r refusing) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error)    { return nil, r.err }

// Close ends the contexts of tasks first. If a task does not end, the lock is
// not released.
func TestElectorCloses(test *testing.T) {
	t := onDatabase(test)
	other := NewElector(t.session(), key("leader"), Observer{})
	e := NewElector(t.session(), key("leader"), Observer{})
	s := scheduler(t.T, skew.NewClock(0), gocron.WithDistributedElector(e), gocron.WithStopTimeout(time.Millisecond))
	runs, end := make(chan context.Context, 1), make(chan struct{})
	newJob(t.T, s, func(ctx context.Context) {
		bound, cancel := e.Bind(context.WithoutCancel(ctx))
		defer cancel()
		runs <- bound
		<-end
	}, gocron.WithSingletonMode(gocron.LimitModeReschedule))
	s.Start()
	bound := <-runs
	if err := e.Shutdown(s); !errors.Is(err, gocron.ErrStopJobsTimedOut) {
		t.Errorf("leave while a task goes on: %v, want ErrStopJobsTimedOut", err)
	}
	if err := other.IsLeader(t.Context()); !errors.Is(err, sqllock.ErrHeld) || bound.Err() != nil {
		t.Errorf("IsLeader of another while a task goes on: %v, want ErrHeld; the task's context: %v", err, bound.Err())
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if cause := context.Cause(bound); cause != election.ErrResigned {
		t.Errorf("a task's context ended with %v, want ErrResigned", cause)
	}
	if err := other.IsLeader(t.Context()); err != nil {
		t.Errorf("IsLeader of another after Close: %v", err)
	}
	close(end)
	if err := other.Close(); err != nil {
		t.Error(err)
	}
}
