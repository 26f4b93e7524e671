package ticks

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure should not drown in losses that tests cause
	code := pgtest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func key(job string) sqllock.Key { return sqllock.Namespace("cron").Key(job) }

// eachDriver runs test with both drivers, each with a database of its own that
// has the table of marks.
func eachDriver(t *testing.T, test func(t *testing.T, driver, dsn string)) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			create(t, open(t, driver, dsn))
			test(t, driver, dsn)
		})
	}
}

func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// create makes the table of marks.
func create(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, statement := range watermark.Schema(sqllock.PostgreSQL) {
		execute(t, db, statement)
	}
}

func execute(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%.40s…: %v", query, err)
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%.40s…: %v", query, err)
	}
	return n
}

// locks counts the advisory locks held in db's database.
func locks(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

func session(t *testing.T, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	s, err := sqllock.Open(context.Background(), open(t, driver, dsn), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
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
