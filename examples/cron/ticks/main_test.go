package ticks

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

func key(job string) sqllock.Key { return sqllock.Namespace("cron").Key(job) }

// A place is a database with the table of marks, and a driver for it.
type place struct {
	*testing.T
	driver, dsn string
	db          *sql.DB
}

func newPlace(t *testing.T, driver, dsn string) *place {
	t.Helper()
	p := &place{t, driver, dsn, dbtest.Open(t, driver, dsn)}
	dbtest.Create(t, p.db, watermark.Schema(sqllock.PostgreSQL))
	return p
}

// eachDriver runs test with both drivers, each on a database of its own.
func eachDriver(t *testing.T, test func(t *place)) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) { test(newPlace(t, driver, dsn)) })
}

// onDatabase is a database of the test's own. The test runs beside others.
func onDatabase(t *testing.T) *place {
	t.Parallel()
	return newPlace(t, "pgx", pgtest.Database(t))
}

// session is the locks of an instance.
func (p *place) session() *sqllock.Session { return dbtest.Session(p, p.driver, p.dsn) }

// instance is the ticks of an instance, with locks of its own.
func (p *place) instance(opts ...Option) *Ticks { return New(p.session(), p.db, "cron", opts...) }

// locks counts the advisory locks that are held.
func (p *place) locks() int { return dbtest.AdvisoryLocks(p, p.db) }

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

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *handClock) forward(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// behind is a clock that differs from c.
func (c *handClock) behind(by time.Duration) func() time.Time {
	return func() time.Time { return c.Now().Add(-by) }
}

// A record is the calls of an Observer.
type record struct {
	mu      sync.Mutex // protects all
	began   []*Run
	ended   []Ended
	refused []Rejected
}

func (r *record) observer() Observer {
	return Observer{
		Began:    func(run *Run) { r.mu.Lock(); defer r.mu.Unlock(); r.began = append(r.began, run) },
		Ended:    func(e Ended) { r.mu.Lock(); defer r.mu.Unlock(); r.ended = append(r.ended, e) },
		Rejected: func(e Rejected) { r.mu.Lock(); defer r.mu.Unlock(); r.refused = append(r.refused, e) },
	}
}

// perTick counts runs by tick.
func (r *record) perTick() map[time.Time]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := map[time.Time]int{}
	for _, run := range r.began {
		n[run.Tick.UTC()]++
	}
	return n
}

// once checks that what was run are ticks of s, none of them twice, and returns
// how many there were.
func (r *record) once(t *testing.T, s Schedule) int {
	t.Helper()
	ticks := r.perTick()
	for tick, n := range ticks {
		if !s.Next(tick.Add(-1)).Equal(tick) {
			t.Errorf("%s is no tick", tick.Format(time.StampMicro))
		}
		if n > 1 {
			t.Errorf("the tick of %s was run %d times", tick.Format(time.StampMilli), n)
		}
	}
	return len(ticks)
}
