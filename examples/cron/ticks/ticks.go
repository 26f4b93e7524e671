// Package ticks runs scheduled jobs once for each tick, however many instances
// of a service schedule them, on robfig/cron and on gocron:
//
//	once := ticks.New(locks, db, "billing") // a sqllock.Session, a *sql.DB, a namespace
//
//	// robfig/cron: a job wrapper
//	cron.NewChain(cron.Recover(logger), ticks.Singleton(ctx, once, "invoices", schedule))
//
//	// gocron: a Locker for each job
//	gocron.WithDistributedJobLocker(ticks.NewLocker(once, ticks.Every(time.Minute)))
//
// Copy ticks.go, run.go and schedule.go, with robfig.go or gocron.go.
package ticks

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// Ticks lets one of many instances run a job at each of its ticks. The first
// instance acquires the job's lock and advances the job's mark to the tick.
//
//   - An instance that comes while the job runs is rejected with
//     sqllock.ErrHeld.
//   - An instance that comes later for the same tick, because its clock is
//     behind, is rejected with watermark.ErrPassed.
//   - A run that outlives its tick keeps the lock: the next tick is skipped.
//
// The mark is committed before the work, so a tick is run at most once. A tick
// whose run dies is not run again. A tick that is due while the database is away
// is not made up for.
//
// Ticks is safe for concurrent use.
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

// WithObserver has o called for runs and rejections. It replaces
// Logged(slog.Default()).
func WithObserver(o Observer) Option { return func(t *Ticks) { t.observer = o } }

// WithClock sets the clock; the default is time.Now. It must be the clock of the
// scheduler, in the scheduler's location (cron.WithLocation).
//
// WithClock panics if now is nil.
func WithClock(now func() time.Time) Option {
	if now == nil {
		panic("cron: WithClock needs a clock")
	}
	return func(t *Ticks) { t.now = now }
}

// WithMaxAhead sets how far a tick may be ahead of the database's clock; the
// default is a minute. An instance whose clock is further ahead is rejected with
// ErrClockAhead: its mark would silence all other instances until their clocks
// reach it.
//
// WithMaxAhead panics if d is not positive.
func WithMaxAhead(d time.Duration) Option {
	if d <= 0 {
		panic("cron: WithMaxAhead needs a positive duration")
	}
	return func(t *Ticks) { t.maxAhead = d }
}

// Errors of Begin, besides those of package sqllock.
var (
	// ErrClockAhead reports that this instance's clock is too far ahead of the
	// database's (WithMaxAhead).
	ErrClockAhead = errors.New("cron: this instance's clock is too far ahead of the database's: set it right")

	// ErrNotDue reports that the schedule has no tick up to now.
	ErrNotDue = errors.New("cron: the schedule has no tick yet")
)

// markTimeout bounds how long the database may take to advance a mark.
const markTimeout = 5 * time.Second

// New returns a Ticks. Its locks are for work that spans transactions: take a
// sqllock.Session. Its marks are in db, in the table of watermark.Schema, which
// all instances must share. Jobs of one name in ns exclude each other.
//
// New panics if locks or db is nil, or ns is not a namespace.
func New(locks sqllock.Locker, db *sql.DB, ns sqllock.Namespace, opts ...Option) *Ticks {
	if locks == nil || db == nil {
		panic("cron: New needs a Locker and a *sql.DB")
	}
	ns.Key("") // panics
	t := &Ticks{locks: locks, db: db, ns: ns, now: time.Now, maxAhead: time.Minute, observer: Logged(slog.Default())}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

// Begin begins a run of job for the tick of s that is due now. The caller must
// end the run with End.
//
// Begin returns sqllock.ErrHeld or watermark.ErrPassed if another instance runs or
// has run the job. Other errors are sqllock.ErrUnavailable, others of the
// database, ErrClockAhead and ErrNotDue.
func (t *Ticks) Begin(ctx context.Context, job string, s Schedule) (*Run, error) {
	tick, ok := tickFor(s, t.now())
	if !ok {
		return nil, t.observer.reject(job, tick, ErrNotDue)
	}
	if err := t.passed(ctx, job, tick); err != nil {
		return nil, t.observer.reject(job, tick, err)
	}
	lock, err := t.locks.TryLock(ctx, t.ns.Key(job))
	if err != nil {
		return nil, t.observer.reject(job, tick, err)
	}
	if err := t.advance(ctx, job, tick, lock.Err); err != nil {
		_ = lock.Unlock() // the error of the mark says what is wrong
		return nil, t.observer.reject(job, tick, err)
	}
	run := &Run{Job: job, Tick: tick, Began: t.now(), ticks: t, schedule: s, lock: lock}
	t.observer.begin(run)
	return run, nil
}

// passed returns watermark.ErrPassed if the tick has been run already. An instance
// that is late must not take the lock to find that out. Another instance may come
// for the next tick meanwhile, and would find the lock held.
func (t *Ticks) passed(ctx context.Context, job string, tick time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	at, ok, err := watermark.Get(ctx, t.db, t.ns.Key(job))
	if err == nil && ok && at >= tick.UnixMilli() {
		return watermark.ErrPassed
	}
	return err
}

// Do runs work under Begin's lock. The context of work is ctx, and also ends when
// the lock is lost.
//
// The error is that of Begin, or sqllock.ErrLost if the lock was lost before work
// returned. A panic of work releases the lock and goes on.
func (t *Ticks) Do(ctx context.Context, job string, s Schedule, work func(context.Context)) (err error) {
	run, err := t.Begin(ctx, job, s)
	if err != nil {
		return err
	}
	bound, cancel := run.Bind(ctx)
	panicked := true
	defer func() {
		cancel() // goroutines that work has left behind stop before the lock is free
		err = run.end(panicked)
	}()
	work(bound)
	panicked = false
	return nil
}

// Pass advances job's mark to the tick of s that is due now. It does not take the
// job's lock: it is for a leader, which may run the job already. Its errors are
// those of Begin without sqllock.ErrHeld.
func (t *Ticks) Pass(ctx context.Context, job string, s Schedule) error {
	tick, ok := tickFor(s, t.now())
	if !ok {
		return t.observer.reject(job, tick, ErrNotDue)
	}
	if err := t.advance(ctx, job, tick, func() error { return nil }); err != nil {
		return t.observer.reject(job, tick, err)
	}
	t.observer.begin(&Run{Job: job, Tick: tick, Began: t.now(), ticks: t, schedule: s})
	return nil
}

// advance advances job's mark to tick, unless held returns an error: then the
// tick is for the instance that holds the lock now.
func (t *Ticks) advance(ctx context.Context, job string, tick time.Time, held func() error) error {
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
	if err := watermark.Advance(ctx, tx, t.ns.Key(job), tick.UnixMilli()); err != nil {
		return err
	}
	if err := held(); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cron: it is not known whether the mark of the tick was moved: %w", withoutDriverText(err))
	}
	return nil
}

// inTime returns ErrClockAhead if tick is too far ahead of the database's clock.
// The statement has no arguments, so that it works behind transaction poolers.
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
