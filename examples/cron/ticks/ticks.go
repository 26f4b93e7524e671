package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Ticks lets one instance of many run a job at each of its ticks: whoever comes first takes the job's lock and
// moves the job's mark to the tick. Whoever comes while it runs is refused with sqllock.ErrHeld, whoever comes
// later for the same tick, by a clock that is behind, with sqllock.ErrPassed. A run that outlives its tick
// keeps the lock, so the next tick is skipped.
//
// The mark is committed before the work: a tick is run at most once. One whose run dies is not run again, and
// one that is due while nobody can reach the database is not made up for.
//
// Its methods may be called at once from several goroutines.
type Ticks struct {
	locks    sqllock.Locker
	db       *sql.DB
	ns       sqllock.Namespace
	now      func() time.Time
	maxAhead time.Duration
	observer Observer
}

// An Option changes how Ticks works.
type Option func(*Ticks)

// WithObserver has o told of runs and refusals, in place of Logged(slog.Default()).
func WithObserver(o Observer) Option { return func(t *Ticks) { t.observer = o } }

// WithClock sets the clock, time.Now by default: the one that the scheduler goes by, in the location that it
// goes by (as set by cron.WithLocation). It panics if now is nil.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("cron: WithClock needs a clock")
	}
	return func(t *Ticks) { t.now = now }
}

// WithMaxAhead sets how far the tick may be ahead of the database's clock, a minute by default: an instance
// whose clock is further ahead is refused with ErrClockAhead, since its mark would keep all others from running
// the job until their clocks are there. It panics if d is not positive.
func WithMaxAhead(d time.Duration) Option {
	if d <= 0 {
		panic("cron: WithMaxAhead needs a positive duration")
	}
	return func(t *Ticks) { t.maxAhead = d }
}

// What Begin fails with besides the errors of package sqllock.
var (
	// ErrClockAhead: this instance's clock is too far ahead of the database's (WithMaxAhead).
	ErrClockAhead = errors.New("cron: this instance's clock is too far ahead of the database's: set it right")

	// ErrNotDue: the schedule has no tick up to now.
	ErrNotDue = errors.New("cron: the schedule has no tick yet")
)

// markTimeout bounds how long the database may take to move a mark.
const markTimeout = 5 * time.Second

// NewTicks makes a Ticks with locks of a sqllock.Session, for work that spans transactions, and marks in db, in
// the table of sqllock.MarkSchema, which all instances must share. Jobs of one name in ns exclude each other.
// It panics if locks or db is nil, or ns is not a namespace.
func NewTicks(locks sqllock.Locker, db *sql.DB, ns sqllock.Namespace, opts ...Option) *Ticks {
	if locks == nil || db == nil {
		panic("cron: NewTicks needs a Locker and a *sql.DB")
	}
	ns.Key("") // panics
	t := &Ticks{locks: locks, db: db, ns: ns, now: time.Now, maxAhead: time.Minute, observer: Logged(slog.Default())}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

// Begin begins a run of job for the tick of s that is due now, or says why not: sqllock.ErrHeld,
// sqllock.ErrPassed, sqllock.ErrUnavailable and others of the database, ErrClockAhead, ErrNotDue. The caller
// must End what it gets.
func (t *Ticks) Begin(ctx context.Context, job string, s Schedule) (*Run, error) {
	tick, ok := tickFor(s, t.now())
	if !ok {
		return nil, t.observer.refuse(job, tick, ErrNotDue)
	}
	if err := t.passed(ctx, job, tick); err != nil {
		return nil, t.observer.refuse(job, tick, err)
	}
	lock, err := t.locks.TryLock(ctx, t.ns.Key(job))
	if err != nil {
		return nil, t.observer.refuse(job, tick, err)
	}
	if err := t.mark(ctx, job, tick, lock.Err); err != nil {
		_ = lock.Unlock() // what it may say, the error of the mark says already
		return nil, t.observer.refuse(job, tick, err)
	}
	run := &Run{Job: job, Tick: tick, Began: t.now(), ticks: t, schedule: s, lock: lock}
	t.observer.begin(run)
	return run, nil
}

// passed is sqllock.ErrPassed if the tick has been run already. Who is late for it must not have taken the lock
// to learn that: the next tick may be due meanwhile for another, and is not run by who finds the lock held.
func (t *Ticks) passed(ctx context.Context, job string, tick time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	at, ok, err := sqllock.Mark(ctx, t.db, t.ns.Key(job))
	if err == nil && ok && at >= tick.UnixMilli() {
		return sqllock.ErrPassed
	}
	return err
}

// Do runs work under Begin's lock. Its context is ctx, and ends when the lock is lost. The error is Begin's, or
// sqllock.ErrLost if the lock was lost before work returned. A panic of work gives the lock back, too, and goes
// on.
func (t *Ticks) Do(ctx context.Context, job string, s Schedule, work func(context.Context)) (err error) {
	run, err := t.Begin(ctx, job, s)
	if err != nil {
		return err
	}
	bound, cancel := run.Bind(ctx)
	panicked := true
	defer func() {
		cancel() // what work may have left behind stops before the lock is free
		err = run.end(panicked)
	}()
	work(bound)
	panicked = false
	return nil
}

// mark moves job's mark to tick, if held says that there is a right to.
func (t *Ticks) mark(ctx context.Context, job string, tick time.Time, held func() error) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cron: the mark of the tick could not be moved: %w", withoutDriverText(err))
	}
	defer func() { _ = tx.Rollback() }()
	if err := t.inTime(ctx, tx, tick); err != nil {
		return err
	}
	if err := sqllock.Advance(ctx, tx, t.ns.Key(job), tick.UnixMilli()); err != nil {
		return err
	}
	if err := held(); err != nil { // the tick stays for who holds the lock now
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cron: it is not known whether the mark of the tick was moved: %w", withoutDriverText(err))
	}
	return nil
}

// inTime fails with ErrClockAhead if tick is too far ahead of the database's clock. Without arguments it works
// behind transaction poolers.
func (t *Ticks) inTime(ctx context.Context, tx *sql.Tx, tick time.Time) error {
	ahead, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT 1 WHERE to_timestamp(%d / 1000.0) > clock_timestamp()",
		tick.Add(-t.maxAhead).UnixMilli()))
	if err != nil {
		return fmt.Errorf("cron: the mark of the tick could not be moved: %w", withoutDriverText(err))
	}
	if n, _ := ahead.RowsAffected(); n > 0 { // drivers of PostgreSQL always know
		return ErrClockAhead
	}
	return nil
}

// Pass moves job's mark to the tick of s that is due now without taking the job's lock: for who has the right
// to run it already, as a leader has. Its errors are Begin's but for sqllock.ErrHeld.
func (t *Ticks) Pass(ctx context.Context, job string, s Schedule) error {
	tick, ok := tickFor(s, t.now())
	if !ok {
		return t.observer.refuse(job, tick, ErrNotDue)
	}
	if err := t.mark(ctx, job, tick, func() error { return nil }); err != nil {
		return t.observer.refuse(job, tick, err)
	}
	t.observer.begin(&Run{Job: job, Tick: tick, Began: t.now(), ticks: t, schedule: s})
	return nil
}
