// Package ticks runs scheduled jobs once for each tick, however many instances
// of a service schedule them, on robfig/cron and on gocron:
//
//	once := ticks.New(locks, db, "billing") // a sqllock.Session, a *sql.DB, a namespace
//
//	// robfig/cron: a job
//	c.Schedule(schedule, ticks.Job(ctx, once, "invoices", schedule, invoices))
//
//	// gocron: a task
//	scheduler.NewJob(gocron.DurationJob(time.Minute), ticks.Task(once, "report", ticks.Every(time.Minute), report))
//
// The package is an example: copy ticks.go and schedule.go into your service,
// with robfig.go or gocron.go. Its API may change.
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
	locks sqllock.Locker
	db    *sql.DB
	ns    sqllock.Namespace
	now   func() time.Time
	log   *slog.Logger
}

// An Option changes how Ticks works.
type Option func(*Ticks)

// WithClock sets the clock; the default is time.Now. It must be the clock of the
// scheduler, in the scheduler's location (cron.WithLocation).
func WithClock(now func() time.Time) Option { return func(t *Ticks) { t.now = now } }

// WithLogger sets where Ticks logs; the default is slog.Default(). The level is
//
//   - error for what keeps this instance from running ticks,
//   - warning for a run that outlived its tick, lost its lock or panicked,
//   - debug for a tick that another instance runs.
func WithLogger(log *slog.Logger) Option { return func(t *Ticks) { t.log = log } }

// Errors of Do, in addition to those of package sqllock.
var (
	// ErrClockAhead reports that this instance's clock is more than a minute ahead
	// of the database's. Its mark would silence all other instances until their
	// clocks reach it.
	ErrClockAhead = errors.New("cron: this instance's clock is too far ahead of the database's: set it right")

	// ErrNotDue reports that the schedule has no tick up to now.
	ErrNotDue = errors.New("cron: the schedule has no tick yet")
)

const (
	maxAhead    = time.Minute     // of the database's clock
	markTimeout = 5 * time.Second // bounds how long the database may take to advance a mark
)

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
	t := &Ticks{locks: locks, db: db, ns: ns, now: time.Now, log: slog.Default()}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

type tickKey struct{}

// TickFromContext returns the tick that the work with this context is for, such
// as the day of a daily report. It is not the time at which the work began.
func TickFromContext(ctx context.Context) (tick time.Time, ok bool) {
	tick, ok = ctx.Value(tickKey{}).(time.Time)
	return tick, ok
}

// Do runs work for the tick of s that is due now, unless another instance runs or
// has run the job. The context of work is ctx. It also ends when the lock is lost,
// and carries the tick, and the lock for sqllock.Fence.
//
// Do returns sqllock.ErrHeld or watermark.ErrPassed if another instance has the
// tick, and sqllock.ErrLost if the lock was lost before work returned. Other errors
// are sqllock.ErrUnavailable, others of the database, ErrClockAhead and ErrNotDue.
// A panic of work releases the lock and goes on.
func (t *Ticks) Do(ctx context.Context, job string, s Schedule, work func(context.Context)) error {
	tick, lock, err := t.begin(ctx, job, s)
	if err != nil {
		level := slog.LevelError
		if errors.Is(err, sqllock.ErrHeld) || errors.Is(err, watermark.ErrPassed) {
			level = slog.LevelDebug
		}
		t.log.Log(ctx, level, "cron: this instance does not run a tick", "job", job, "tick", tick, "error", err)
		return err
	}
	return t.run(ctx, job, s, tick, lock, work)
}

// run runs work under lock, and releases it.
func (t *Ticks) run(ctx context.Context, job string, s Schedule, tick time.Time, lock *sqllock.Lock, work func(context.Context)) (err error) {
	bound, cancel := lock.Bind(context.WithValue(ctx, tickKey{}, tick))
	panicked := true
	defer func() {
		cancel() // goroutines that work has left behind stop before the lock is free
		err = lock.Unlock()
		if skipped := dueBetween(s, tick, t.now()); skipped > 0 || panicked || err != nil {
			t.log.Warn("cron: a run did not end well", "job", job, "tick", tick, "skipped", skipped, "panicked", panicked, "error", err)
		}
	}()
	work(bound)
	panicked = false
	return nil
}

// begin acquires the lock of a job and advances its mark to the tick that is due.
func (t *Ticks) begin(ctx context.Context, job string, s Schedule) (tick time.Time, lock *sqllock.Lock, err error) {
	tick, ok := tickFor(s, t.now())
	if !ok {
		return tick, nil, ErrNotDue
	}
	if err := t.passed(ctx, job, tick); err != nil {
		return tick, nil, err
	}
	if lock, err = t.locks.TryLock(ctx, t.ns.Key(job)); err != nil {
		return tick, nil, err
	}
	if err := t.advance(ctx, job, tick, lock); err != nil {
		_ = lock.Unlock() // the error of the mark says what is wrong
		return tick, nil, err
	}
	return tick, lock, nil
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

// advance advances job's mark to tick, unless lock is lost: then the tick is for
// the instance that holds the lock now.
func (t *Ticks) advance(ctx context.Context, job string, tick time.Time, lock *sqllock.Lock) error {
	ctx, cancel := context.WithTimeout(ctx, markTimeout)
	defer cancel()
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("cron: the mark of the tick could not be moved: %w", withoutDriverText(err))
	}
	defer func() { _ = tx.Rollback() }()
	// The statement has no arguments, so that it works behind transaction poolers.
	ahead, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT 1 WHERE to_timestamp(%d / 1000.0) > clock_timestamp()",
		tick.Add(-maxAhead).UnixMilli()))
	if err != nil {
		return fmt.Errorf("cron: the mark of the tick could not be moved: %w", withoutDriverText(err))
	}
	if n, _ := ahead.RowsAffected(); n > 0 { // drivers of PostgreSQL always know
		return ErrClockAhead
	}
	if err := watermark.Advance(ctx, tx, t.ns.Key(job), tick.UnixMilli()); err != nil {
		return err
	}
	if err := lock.Err(); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("cron: it is not known whether the mark of the tick was moved: %w", withoutDriverText(err))
	}
	return nil
}

// withoutDriverText returns err without the driver's text, which may name hosts
// and users: sqllock.ErrUnavailable, the context's error, or the server's
// SQLSTATE.
func withoutDriverText(err error) error {
	var coded interface{ SQLState() string }
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.As(err, &coded):
		return errors.New("SQLSTATE " + coded.SQLState())
	}
	return sqllock.ErrUnavailable
}
