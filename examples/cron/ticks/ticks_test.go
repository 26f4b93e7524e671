package ticks

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

// A place is a database with the table of marks, and what is logged.
type place struct {
	*testing.T

	driver, dsn string
	db          *sql.DB
	log         httptesting.Logbook
}

func newPlace(t *testing.T, driver, dsn string) *place {
	t.Helper()
	p := &place{T: t, driver: driver, dsn: dsn, db: dbtest.Open(t, driver, dsn)}
	dbtest.Create(t, p.db, watermark.Schema(sqllock.PostgreSQL))
	return p
}

// onDatabase is a database of the test's own. The test runs next to others.
func onDatabase(t *testing.T) *place {
	t.Parallel()
	return newPlace(t, "pgx", pgtest.Database(t))
}

// session is the locks of an instance.
func (p *place) session() *sqllock.Session { return dbtest.Session(p, p.driver, p.dsn) }

// instance is the ticks of an instance, with locks of its own.
func (p *place) instance(now func() time.Time) *Ticks { return p.with(p.session(), p.db, now) }

func (p *place) with(locks sqllock.Locker, db *sql.DB, now func() time.Time) *Ticks {
	return New(locks, db, "cron", WithClock(now), WithLogger(p.log.Logger()))
}

// cut has the server end the connections that hold locks.
func (p *place) cut() {
	dbtest.Execute(p, p.db, `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// A handClock is a clock that tests put forward by hand.
type handClock struct {
	mu  sync.Mutex // protects now
	now time.Time
}

// newHandClock is at the beginning of a minute that is past: the database's
// clock must not be behind it.
func newHandClock() *handClock {
	return &handClock{now: time.Now().Add(-time.Hour).Truncate(time.Minute)}
}

func (c *handClock) Now() time.Time { return c.behind(0)() }

func (c *handClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// behind is a clock that differs from c.
func (c *handClock) behind(by time.Duration) func() time.Time {
	return func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.now.Add(-by)
	}
}

// A record is the ticks that were run.
type record struct {
	mu   sync.Mutex // protects runs
	runs map[time.Time]int
}

// work is a job's work.
func (r *record) work(ctx context.Context) {
	tick, _ := TickFromContext(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[time.Time]int{}
	}
	r.runs[tick.UTC()]++
}

// once checks that what was run are ticks of s, none of them twice, and returns
// how many there were.
func (r *record) once(t *testing.T, s Schedule) int {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for tick, n := range r.runs {
		if n > 1 || !s.Next(tick.Add(-1)).Equal(tick) {
			t.Errorf("%s was run %d times, and may be no tick", tick.Format(time.StampMilli), n)
		}
	}
	return len(r.runs)
}

// hooked is a Locker that calls a function with each lock before the caller has it.
type hooked struct {
	sqllock.Locker

	locked func(*sqllock.Lock)
}

func (l hooked) TryLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
	lock, err := l.Locker.TryLock(ctx, key)
	if err == nil {
		l.locked(lock)
	}
	return lock, err
}

// An instance that is late for a tick finds out that the tick was run. Meanwhile
// it does not keep others from the next tick.
func TestLateForTick(test *testing.T) {
	t := onDatabase(test)
	const every = 10 * time.Second
	clock, s := newHandClock(), Every(every)
	var r record
	punctual := t.instance(clock.Now)
	run := func() {
		if err := punctual.Do(t.Context(), "report", s, r.work); err != nil {
			t.Errorf("the tick at its time: %v", err)
		}
	}
	run()
	late := t.with(hooked{t.session(), func(*sqllock.Lock) { t.Error("it has asked for the lock") }}, t.db, clock.behind(every/5))
	clock.forward(every / 2)
	if err := late.Do(t.Context(), "report", s, r.work); err != watermark.ErrPassed {
		t.Errorf("a tick that was run: %v, want ErrPassed", err)
	}
	clock.forward(every)
	run()
	if n := r.once(test, s); n != 2 || t.log.String() != "" {
		t.Errorf("%d ticks, and logged\n%s", n, t.log.String())
	}
}

// Clocks differ by up to 5.5 s and in their speed, over a minute with a tick in
// each second. Each tick is run once, whichever instance comes when.
func TestClocksThatDiffer(t *testing.T) {
	instances := []struct{ behind, late time.Duration }{
		{0, 0},
		{0, 70 * time.Millisecond},
		{2300 * time.Millisecond, 0},
		{-3200 * time.Millisecond, 30 * time.Millisecond},
		{-3200 * time.Millisecond, 80 * time.Millisecond},
	}
	dbtest.EachDriver(t, func(test *testing.T, driver, dsn string) {
		t := newPlace(test, driver, dsn)
		clock, s := newHandClock(), Every(time.Second)
		var r record
		var ticks []*Ticks
		for _, i := range instances {
			ticks = append(ticks, t.instance(clock.behind(i.behind-i.late)))
		}
		for range 600 {
			for n, i := range instances {
				if now := clock.behind(i.behind)(); now.Truncate(time.Second) != now { // its scheduler sleeps
					continue
				}
				if err := ticks[n].Do(t.Context(), "report", s, r.work); err != nil && err != watermark.ErrPassed {
					t.Fatal(err)
				}
			}
			clock.forward(100 * time.Millisecond)
		}
		if n := r.once(test, s); n != 1+60 { // one before the clock that is ahead had its first
			t.Errorf("%d ticks were run, want 61", n)
		}
	})
}

// A run that outlives its tick keeps the next ones from being run, and the log says
// so when it ends.
func TestRunOutlivesTick(test *testing.T) {
	t := onDatabase(test)
	clock, s := newHandClock(), Every(10*time.Second)
	var r record
	one, other := t.instance(clock.Now), t.instance(clock.Now)
	err := one.Do(t.Context(), "report", s, func(ctx context.Context) {
		r.work(ctx)
		for range 2 {
			clock.forward(10 * time.Second)
			for name, ticks := range map[string]*Ticks{"the same instance": one, "another": other} {
				if err := ticks.Do(t.Context(), "report", s, r.work); !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("a later tick by %s: %v, want ErrHeld", name, err)
				}
			}
		}
	})
	if err != nil || !strings.Contains(t.log.String(), "skipped=2") {
		t.Errorf("%v, and logged\n%s", err, t.log.String())
	}
	clock.forward(10 * time.Second)
	if err := other.Do(t.Context(), "report", s, r.work); err != nil {
		t.Errorf("the tick after it: %v", err)
	}
	if n := r.once(test, s); n != 2 {
		t.Errorf("%d ticks were run, want 2", n)
	}
}

// The work's context ends when the lock is lost; then Do says so.
func TestWorkHearsOfLoss(test *testing.T) {
	t := onDatabase(test)
	err := t.instance(time.Now).Do(t.Context(), "report", Every(time.Hour), func(ctx context.Context) {
		t.cut()
		<-ctx.Done()
		if cause := context.Cause(ctx); cause != sqllock.ErrLost {
			t.Errorf("the work's context ended with %v, want ErrLost", cause)
		}
	})
	if err != sqllock.ErrLost || !strings.Contains(t.log.String(), "level=WARN") {
		t.Errorf("Do: %v, want ErrLost, and logged\n%s", err, t.log.String())
	}
}

// A job that panics releases the lock. The panic goes on, and the log has it.
func TestPanic(test *testing.T) {
	t := onDatabase(test)
	defer func() {
		if p := recover(); p != "out of paper" || !strings.Contains(t.log.String(), "panicked=true") || dbtest.AdvisoryLocks(t, t.db) != 0 {
			t.Errorf("recovered %v, and logged\n%s", p, t.log.String())
		}
	}()
	_ = t.instance(time.Now).Do(t.Context(), "report", Every(time.Hour), func(context.Context) { panic("out of paper") })
}

// An instance does not run a tick, says why, and keeps no lock.
func TestRejected(test *testing.T) {
	t := onDatabase(test)
	away := dbtest.Open(test, "pgx", "postgres://clerk@127.0.0.1:1/nowhere?sslmode=disable") // a port that no server has
	loser := hooked{t.session(), func(lock *sqllock.Lock) {
		t.cut()
		lockertest.Eventually(test, "the loss is known", func() bool { return lock.Err() == sqllock.ErrLost })
	}}
	ahead := func() time.Time { return time.Now().Add(24 * time.Hour) }
	for name, tt := range map[string]struct {
		ticks *Ticks
		s     Schedule
		want  error
	}{
		"a clock that is a day ahead": {t.instance(ahead), Every(time.Second), ErrClockAhead},
		"a schedule without ticks":    {t.instance(time.Now), parse(test, "0 0 30 2 *"), ErrNotDue},
		"lost before the mark":        {t.with(loser, t.db, time.Now), Every(time.Hour), sqllock.ErrLost},
		"no database for the marks":   {t.with(t.session(), away, time.Now), Every(time.Hour), sqllock.ErrUnavailable},
	} {
		err := tt.ticks.Do(t.Context(), "report", tt.s, func(context.Context) { t.Errorf("%s: it is run", name) })
		if !errors.Is(err, tt.want) || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	if n := strings.Count(t.log.String(), "level=ERROR"); n != 4 {
		t.Errorf("%d errors are logged\n%s", n, t.log.String())
	}
	lockertest.Eventually(test, "no lock is held", func() bool { return dbtest.AdvisoryLocks(t, t.db) == 0 })
	var r record
	if err := t.instance(time.Now).Do(t.Context(), "report", Every(time.Hour), r.work); err != nil {
		t.Errorf("the tick by an instance that is well: %v", err)
	}
}
