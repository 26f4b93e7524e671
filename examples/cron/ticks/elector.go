package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Elector is gocron's Elector: the instance that holds a lock runs all jobs, until it closes or loses the lock;
// then the next one that asks does. A job's runs may overlap, unless it has gocron.WithSingletonMode.
//
// An Elector alone does not keep a tick from being run twice: the clock of the next leader may be behind that
// of the last. Each job wants OncePerTick besides.
type Elector struct {
	locks    sqllock.Locker
	key      sqllock.Key
	observer Observer

	// turn is held, by who has put something in, while the lock is taken or given back: that is I/O, but of two
	// jobs that are due at once neither may take the other's lock for a rival's. It protects lock and closed.
	turn   chan struct{}
	lock   *sqllock.Lock // nil until there was one
	closed bool
}

// NewElector makes an Elector with the lock of key. gocron tells nobody why an Elector refuses, so o, as
// Logged(slog.Default()), is told of each refusal but sqllock.ErrHeld: one without a job. It panics if locks is
// nil.
func NewElector(locks sqllock.Locker, key sqllock.Key, o Observer) *Elector {
	if locks == nil {
		panic("cron: NewElector needs a Locker")
	}
	return &Elector{locks: locks, key: key, observer: o, turn: make(chan struct{}, 1)}
}

// IsLeader is nil if this instance holds the lock, or could take it just now. Otherwise it is sqllock.ErrHeld
// if another leads, sqllock.ErrUnavailable if nobody knows, sqllock.ErrClosed after Close.
func (e *Elector) IsLeader(ctx context.Context) error {
	err := e.elect(ctx)
	if err != nil && !errors.Is(err, sqllock.ErrHeld) {
		return e.observer.refuse("", time.Time{}, err)
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

// Bind is ctx for a task of the leader: it also ends when this instance does not lead any more, with cause
// sqllock.ErrLost, or sqllock.ErrResigned by Close. Call it first in the task.
func (e *Elector) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	if e.lock == nil {
		return context.WithCancel(ctx)
	}
	return e.lock.Bind(ctx)
}

// Close ends the contexts of tasks, with cause sqllock.ErrResigned, and then gives the lock back, so that another
// leads at once. It does not wait for tasks: call it when the scheduler's Shutdown has returned nil. If that
// failed, a task still runs: do not call it then, and the end of the process frees the lock.
func (e *Elector) Close() error {
	e.turn <- struct{}{}
	defer func() { <-e.turn }()
	e.closed = true
	e.lock.Cancel(sqllock.ErrResigned)
	if err := e.lock.Unlock(); !errors.Is(err, sqllock.ErrLost) {
		return err
	}
	return nil // there is nothing to give back
}

// OncePerTick is a listener for a job under an Elector, which skips a tick of schedule that has been run
// already, by this leader or the last. ctx ends what it asks of the database.
//
//	gocron.WithEventListeners(OncePerTick(ctx, ticks, schedule))
//
// It panics if the ticks of schedule depend on when it is asked.
func OncePerTick(ctx context.Context, ticks *Ticks, schedule Schedule) gocron.EventListener {
	inCommon := common(schedule)
	return gocron.BeforeJobRunsSkipIfBeforeFuncErrors(func(_ uuid.UUID, name string) error {
		return ticks.Pass(ctx, name, inCommon)
	})
}
