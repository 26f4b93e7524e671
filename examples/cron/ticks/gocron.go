package ticks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// Locker is gocron's Locker for jobs of one schedule. One of all instances runs a
// job at each tick. gocron passes the job's name to a Locker and not the tick, and
// warns of clocks that differ. This Locker computes the tick from the schedule,
// and remembers it.
//
// Give each job a Locker and a name; without a name, gocron takes that of the
// function.
//
//	s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(report), gocron.WithName("report"),
//		gocron.WithDistributedJobLocker(NewLocker(ticks, Every(time.Minute))))
//
// The Observer of Ticks and gocron's listener AfterLockError are called when a
// tick is skipped.
type Locker struct {
	ticks    *Ticks
	schedule Schedule

	mu      sync.Mutex // protects running
	running map[string]*Run
}

// NewLocker returns a Locker for jobs of one schedule: Every(d) for a DurationJob
// of d, the parsed expression for a CronJob. It panics if the ticks of schedule
// depend on when it is asked.
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

// Bind returns ctx for the work of the job named key, and for its tick. It also
// ends when the lock is lost, with the cause sqllock.ErrLost. gocron has no other
// way for that, so a task calls Bind first. Outside a run Bind returns ctx.
func (l *Locker) Bind(ctx context.Context, key string) (context.Context, context.CancelFunc) {
	l.mu.Lock()
	run := l.running[key]
	l.mu.Unlock()
	if run == nil {
		return context.WithCancel(ctx)
	}
	return run.Bind(ctx)
}

// A runLock is the lock that gocron releases when the run has ended, by a panic,
// too.
type runLock struct {
	locker *Locker
	run    *Run
}

// Unlock ends the run. It ignores its context, which has ended when the scheduler
// is shut down.
func (r *runLock) Unlock(context.Context) error {
	l := r.locker
	l.mu.Lock()
	if l.running[r.run.Job] == r.run {
		delete(l.running, r.run.Job)
	}
	l.mu.Unlock()
	return r.run.End()
}

// Elector is gocron's Elector. The instance that holds a lock runs all jobs,
// until it closes the Elector or loses the lock. Then the next instance that asks
// leads. Runs of one job may overlap, unless the job has gocron.WithSingletonMode.
//
// An Elector alone does not keep a tick from being run twice: the clock of the
// next leader may be behind that of the last. Each job needs OncePerTick, too.
type Elector struct {
	locks    sqllock.Locker
	key      sqllock.Key
	observer Observer

	// turn protects lock and closed. A goroutine has put a value in while it
	// acquires or releases the lock, which is I/O. Two jobs may be due at once, and
	// neither must mistake the other's lock for a lock of another instance.
	turn   chan struct{}
	lock   *sqllock.Lock // nil until there was one
	closed bool
}

// NewElector returns an Elector with the lock of key. gocron does not report why
// an Elector rejects. So o is called for each rejection that is not
// sqllock.ErrHeld, with no job; Logged(slog.Default()) will do.
//
// NewElector panics if locks is nil.
func NewElector(locks sqllock.Locker, key sqllock.Key, o Observer) *Elector {
	if locks == nil {
		panic("cron: NewElector needs a Locker")
	}
	return &Elector{locks: locks, key: key, observer: o, turn: make(chan struct{}, 1)}
}

// IsLeader returns nil if this instance holds the lock, or could acquire it just
// now. It returns sqllock.ErrHeld if another instance leads,
// sqllock.ErrUnavailable if that is not known, and sqllock.ErrClosed after Close.
func (e *Elector) IsLeader(ctx context.Context) error {
	err := e.elect(ctx)
	if err != nil && !errors.Is(err, sqllock.ErrHeld) {
		return e.observer.reject("", time.Time{}, err)
	}
	return err
}

func (e *Elector) elect(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if e.closed {
		return sqllock.ErrClosed
	}
	if e.lock != nil && e.lock.Err() == nil {
		return nil
	}
	lock, err := e.locks.TryLock(ctx, e.key)
	if err == nil {
		e.lock = lock
	}
	return err
}

// Bind returns ctx for a task of the leader. It also ends when this instance does
// not lead any more, with the cause sqllock.ErrLost, or election.ErrResigned after
// Close. A task calls Bind first.
func (e *Elector) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.lock == nil {
		return context.WithCancel(ctx)
	}
	return e.lock.Bind(ctx)
}

// Close ends the contexts of tasks, with the cause election.ErrResigned, and then
// releases the lock, so that another instance leads at once. It does not wait for
// tasks.
//
// Call Close when the scheduler's Shutdown has returned nil, as Shutdown of the
// Elector does.
func (e *Elector) Close() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.closed = true
	e.lock.Cancel(election.ErrResigned)
	if err := e.lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
		return err
	}
	return nil // there is nothing to release
}

// Shutdown shuts scheduler down, and then closes e. If scheduler cannot be shut
// down, a task still runs. Then e keeps the lock, which the end of the process
// frees.
func (e *Elector) Shutdown(scheduler gocron.Scheduler) error {
	if err := scheduler.Shutdown(); err != nil {
		return err
	}
	return e.Close()
}

// OncePerTick returns a listener for a job under an Elector. It skips a tick of
// schedule that has been run already, by this leader or an earlier one. When ctx
// ends, so do its statements.
//
//	gocron.WithEventListeners(OncePerTick(ctx, ticks, schedule))
//
// OncePerTick panics if the ticks of schedule depend on when it is asked.
func OncePerTick(ctx context.Context, ticks *Ticks, schedule Schedule) gocron.EventListener {
	inCommon := common(schedule)
	return gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(_ uuid.UUID, name string) error {
		return ticks.Pass(ctx, name, inCommon)
	})
}
