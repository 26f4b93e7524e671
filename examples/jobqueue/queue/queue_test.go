package queue

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

// A fixture is a database with the tables.
type fixture struct {
	*testing.T

	driver, dsn string
	db          *sqlx.DB
}

// effects is the account: without a unique constraint, which would hide a
// second effect.
const effects = "CREATE TABLE effects (job_id bigint NOT NULL, attempt int NOT NULL)"

func newFixture(t *testing.T, driver, dsn string) *fixture {
	t.Helper()
	f := &fixture{t, driver, dsn, open(t, driver, dsn)}
	for _, statement := range append(Schema(), effects) {
		f.exec(statement)
	}
	return f
}

// onDatabase is a database of the test's own. The test runs next to others.
func onDatabase(t *testing.T) *fixture {
	t.Parallel()
	return newFixture(t, "pgx", pgtest.Database(t))
}

// eachDriver runs test with both drivers.
func eachDriver(t *testing.T, test func(f *fixture)) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) { test(newFixture(t, driver, dsn)) })
}

func open(t *testing.T, driver, dsn string) *sqlx.DB {
	t.Helper()
	return sqlx.NewDb(dbtest.Open(t, driver, dsn), driver)
}

// queue is the queue of a process, with a session of its own.
func (f *fixture) queue(kinds Kinds) *Queue {
	f.Helper()
	return f.with(dbtest.Session(f, f.driver, f.dsn), kinds)
}

func (f *fixture) with(locks Locks, kinds Kinds) *Queue {
	f.Helper()
	q, err := Open(context.Background(), f.db, locks, kinds, Options{Poll: 5 * time.Millisecond, Backoff: time.Millisecond})
	if err != nil {
		f.Fatal(err)
	}
	return q
}

// start runs q until the test ends.
func (f *fixture) start(q *Queue, workers int) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { q.Run(ctx, workers) })
	f.Cleanup(func() { cancel(); running.Wait() })
}

func (f *fixture) enqueue(job Job) int64 {
	f.Helper()
	id, err := Enqueue(context.Background(), f.db, job)
	if err != nil {
		f.Fatal(err)
	}
	return id
}

func (f *fixture) exec(query string, args ...any) {
	f.Helper()
	dbtest.Execute(f, f.db.DB, query, args...)
}

// count is the one number that query yields.
func (f *fixture) count(query string, args ...any) int {
	f.Helper()
	var n sql.NullInt64
	if err := f.db.Get(&n, query, args...); err != nil {
		f.Fatal(err)
	}
	return int(n.Int64)
}

// withStatus is how many jobs have a status.
func (f *fixture) withStatus(status string) int {
	f.Helper()
	return f.count("SELECT count(*) FROM jobs WHERE status = $1", status)
}

// wantEffects checks how many effects there are, of how many jobs.
func (f *fixture) wantEffects(n int) {
	f.Helper()
	if all, jobs := f.count("SELECT count(*) FROM effects"), f.count("SELECT count(DISTINCT job_id) FROM effects"); all != n || jobs != n {
		f.Errorf("%d effects of %d jobs, want %d", all, jobs, n)
	}
}

func record(_ context.Context, job Job) (Effect, error) {
	return func(ctx context.Context, tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt)
		return err
	}, nil
}

// cutOff ends the database sessions that hold locks: their processes are dead,
// as far as the database knows.
func (f *fixture) cutOff() {
	f.Helper()
	if n := f.count(`SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`); n == 0 {
		f.Fatal("no lock is held")
	}
	lockertest.Eventually(f.T, "their locks are free", func() bool { return dbtest.AdvisoryLocks(f, f.db.DB) == 0 })
}

func (f *fixture) mustTake(q *Queue) *hold {
	f.Helper()
	h, err := q.take(f.Context())
	if err != nil || h == nil {
		f.Fatalf("take: %v, %v", h, err)
	}
	return h
}

func (h *hold) release() { _ = h.lock.Unlock() }

func TestEachJobOnce(t *testing.T) {
	eachDriver(t, func(f *fixture) {
		const jobs = 60
		f.exec("INSERT INTO jobs (id, kind) SELECT i, 'k' FROM generate_series(1, $1::int) i", jobs-3)
		f.exec("INSERT INTO jobs (id, kind) VALUES (0, 'k'), (-9223372036854775808, 'k'), (9223372036854775807, 'k')")
		var worked atomic.Int32
		kinds := Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			worked.Add(1)
			return record(ctx, job)
		}}}
		for range 2 {
			f.start(f.queue(kinds), 8)
		}
		lockertest.Eventually(f.T, "all jobs are done", func() bool { return f.withStatus("done") == jobs })
		f.wantEffects(jobs)
		if n := worked.Load(); n != jobs {
			f.Errorf("%d jobs were worked on %d times, without any fault", jobs, n)
		}
	})
}

func TestOrder(t *testing.T) {
	f := onDatabase(t)
	f.enqueue(Job{Kind: "k", Args: "later", RunAt: time.Now().Add(time.Hour), Priority: 9})
	f.enqueue(Job{Kind: "k", Args: "low", Priority: -1})
	f.enqueue(Job{Kind: "k", Args: "normal"})
	f.enqueue(Job{Kind: "k", Args: "high", Priority: 5})
	f.enqueue(Job{Kind: "other", Args: "not ours", Priority: 9})
	order := make(chan string, 9)
	f.start(f.queue(Kinds{"k": {Work: func(_ context.Context, job Job) (Effect, error) {
		order <- job.Args
		return nil, nil
	}}}), 1)
	for _, want := range []string{"high", "normal", "low"} {
		if got := <-order; got != want {
			t.Errorf("job %q comes where %q should", got, want)
		}
	}
	lockertest.Eventually(t, "three jobs are done", func() bool { return f.withStatus("done") == 3 })
	if n := f.withStatus("ready"); n != 2 {
		t.Errorf("%d jobs are ready, want the later one and the one of a kind not known here", n)
	}
}

// An error or panic of work or effect is a failed attempt, whose text the table
// accepts. After the last attempt the job is dead, without effects.
func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	fails := func(err error) Work {
		return func(context.Context, Job) (Effect, error) { return nil, err }
	}
	effect := func(e Effect) Work {
		return func(context.Context, Job) (Effect, error) { return e, nil }
	}
	insert := func(ctx context.Context, tx *sqlx.Tx) {
		_, _ = tx.ExecContext(ctx, "INSERT INTO effects VALUES (1, 1)")
	}
	tests := []struct {
		name string
		work Work
		want string // in the error
	}{
		{"an error", fails(boom), "boom"},
		{`a "name"\, {odd}`, fails(boom), "boom"},
		{"a panic", func(context.Context, Job) (Effect, error) { panic("ouch") }, "panic: ouch"},
		{"a panic with an error", func(context.Context, Job) (Effect, error) { panic(boom) }, "panic: boom"},
		{"bytes that PostgreSQL rejects", fails(errors.New("a\x00b\xff")), "a?b?"},
		{"a long text", fails(errors.New(strings.Repeat("é", 9999))), "é…"},
		{"a timeout", func(ctx context.Context, _ Job) (Effect, error) { <-ctx.Done(); return nil, ctx.Err() }, "deadline"},
		{"an effect's error", effect(func(ctx context.Context, tx *sqlx.Tx) error { insert(ctx, tx); return boom }), "boom"},
		{"an effect's panic", effect(func(ctx context.Context, tx *sqlx.Tx) error { insert(ctx, tx); panic("ouch") }), "panic: ouch"},
		{"an effect that the database rejects", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			insert(ctx, tx)
			_, err := tx.ExecContext(ctx, "SELECT 1 / 0")
			return err
		}), "division by zero"},
		{"an effect that ignores that", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			insert(ctx, tx)
			_, _ = tx.ExecContext(ctx, "SELECT 1 / 0")
			return nil
		}), "25P02"},
		{"rejected at the commit", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (-1, -1)") // a deferred constraint
			return err
		}), "23503"},
		{"an effect that ends its transaction", effect(func(ctx context.Context, tx *sqlx.Tx) error { return tx.Rollback() }), "ended its transaction"},
	}
	eachDriver(t, func(f *fixture) {
		f.exec("CREATE TABLE known (id bigint PRIMARY KEY)")
		f.exec("INSERT INTO known VALUES (1)")
		f.exec("ALTER TABLE effects ADD FOREIGN KEY (job_id) REFERENCES known DEFERRABLE INITIALLY DEFERRED")
		kinds, ids := Kinds{}, map[string]int64{}
		for _, tt := range tests {
			kinds[tt.name] = Kind{Work: tt.work}
			if tt.name == "a timeout" {
				kinds[tt.name] = Kind{Work: tt.work, Timeout: time.Millisecond}
			}
			ids[tt.name] = f.enqueue(Job{Kind: tt.name, MaxAttempts: 2})
		}
		f.start(f.queue(kinds), 4)
		lockertest.Eventually(f.T, "all jobs are dead", func() bool { return f.withStatus("dead") == len(tests) })
		for _, tt := range tests {
			var got struct {
				Attempt int
				Error   string
			}
			if err := f.db.Get(&got, "SELECT attempt, error FROM jobs WHERE id = $1", ids[tt.name]); err != nil {
				t.Fatal(err)
			}
			if got.Attempt != 2 || !strings.Contains(got.Error, tt.want) || len(got.Error) > maxErrorLen+len("…") {
				t.Errorf("%s: %d attempts, error %q, want 2 and %q", tt.name, got.Attempt, got.Error, tt.want)
			}
		}
		if n := f.count("SELECT count(*) FROM effects"); n != 0 {
			t.Errorf("%d effects of jobs that failed", n)
		}
	})
}

func TestTables(t *testing.T) {
	schema := strings.Join(Schema(), ";")
	for name, tt := range map[string]struct {
		ddl string
		ok  bool
	}{
		"none":              {"SELECT 1", false},
		"no jobs":           {"CREATE TABLE latchkey_fence (x int)", false},
		"in another schema": {"CREATE SCHEMA work; SET search_path = work;" + schema + "; RESET search_path", false},
		"there, made twice": {schema + ";" + schema, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t, "pgx", pgtest.Database(t))
			dbtest.Execute(t, db.DB, tt.ddl)
			_, err := Open(t.Context(), db, dbtest.Session(t, "pgx", pgtest.Database(t)), Kinds{"k": {Work: record}}, Options{})
			if (err == nil) != tt.ok || err != nil && !strings.Contains(err.Error(), "queue.Schema") {
				t.Errorf("Open: %v", err)
			}
		})
	}
}
