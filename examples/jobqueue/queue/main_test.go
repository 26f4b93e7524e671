package queue

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

// ways are both, as subtests run them.
var ways = []struct {
	name string
	new  func(*Queue, Locks) Way
}{
	{"advisory lock", AdvisoryLock},
	{"skip locked", SkipLocked},
}

// eachWay runs test with both ways, each on a database of its own.
func eachWay(t *testing.T, test func(t *testing.T, f *fixture)) { eachWayOn(t, "pgx", test) }

func eachWayOn(t *testing.T, driver string, test func(t *testing.T, f *fixture)) {
	for _, way := range ways {
		t.Run(way.name+", "+driver, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, driver, pgtest.Database(t), way.new))
		})
	}
}

// eachWayAndDriver is eachWay with both drivers.
func eachWayAndDriver(t *testing.T, test func(t *testing.T, f *fixture)) {
	for _, driver := range pgtest.Drivers() {
		eachWayOn(t, driver, test)
	}
}

// A fixture is a database with the tables, in which processes work one way.
type fixture struct {
	t           *testing.T
	driver, dsn string
	way         func(*Queue, Locks) Way
	db          *sqlx.DB
}

func newFixture(t *testing.T, driver, dsn string, way func(*Queue, Locks) Way) *fixture {
	t.Helper()
	f := &fixture{t: t, driver: driver, dsn: dsn, way: way, db: open(t, driver, dsn)}
	for _, statement := range Schema() {
		f.exec(statement)
	}
	return f
}

// locks is a session of its own, as a process has.
func (f *fixture) locks() *sqllock.Session { return dbtest.Session(f.t, f.driver, f.dsn) }

func (f *fixture) queue(kinds Kinds, opts ...Option) *Queue {
	f.t.Helper()
	quick := []Option{WithPoll(5 * time.Millisecond), WithBackoff(time.Millisecond), WithReapFloor(20 * time.Millisecond)}
	q, err := Open(context.Background(), f.db, kinds, append(quick, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	return q
}

// process is a way over a session of its own.
func (f *fixture) process(kinds Kinds, opts ...Option) Way {
	f.t.Helper()
	return f.way(f.queue(kinds, opts...), f.locks())
}

// start runs w until stop is called or the test ends.
func (f *fixture) start(w Way, workers int) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { Run(ctx, w, workers) })
	stop = func() { cancel(); running.Wait() }
	f.t.Cleanup(stop)
	return stop
}

func (f *fixture) enqueue(job Job) int64 {
	f.t.Helper()
	id, err := Enqueue(context.Background(), f.db, job)
	if err != nil {
		f.t.Fatal(err)
	}
	return id
}

func (f *fixture) exec(query string, args ...any) {
	f.t.Helper()
	if _, err := f.db.Exec(query, args...); err != nil {
		f.t.Fatal(err)
	}
}

// count is the one number that query yields.
func (f *fixture) count(query string, args ...any) int {
	f.t.Helper()
	var n sql.NullInt64
	if err := f.db.Get(&n, query, args...); err != nil {
		f.t.Fatal(err)
	}
	return int(n.Int64)
}

// with is how many jobs have this status.
func (f *fixture) with(status string) int {
	f.t.Helper()
	return f.count("SELECT count(*) FROM jobs WHERE status = $1", status)
}
