package queue

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// effects is the account: without a unique constraint, which would hide a
// second effect.
const effects = "CREATE TABLE effects (job_id bigint NOT NULL, attempt int NOT NULL)"

func record(ctx context.Context, job Job) (Effect, error) {
	return func(ctx context.Context, tx *sqlx.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES ($1, $2)", job.ID, job.Attempt)
		return err
	}, nil
}

func TestEachJobOnce(t *testing.T) {
	eachWayAndDriver(t, func(t *testing.T, f *fixture) {
		f.exec(effects)
		const jobs = 60
		f.exec("INSERT INTO jobs (id, kind) SELECT i, 'k' FROM generate_series(1, $1::int) i", jobs-4)
		f.exec("INSERT INTO jobs (id, kind) VALUES (-1, 'k'), (0, 'k'), (-9223372036854775808, 'k'), (9223372036854775807, 'k')")
		var mu sync.Mutex
		worked := map[int64]int{}
		kinds := Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			mu.Lock()
			worked[job.ID]++
			mu.Unlock()
			return record(ctx, job)
		}}}
		for range 2 {
			f.start(f.process(kinds), 8)
		}
		lockertest.Eventually(t, "all jobs are done", func() bool { return f.with("done") == jobs })
		if n := f.count("SELECT count(DISTINCT job_id) FROM effects"); n != jobs || f.count("SELECT count(*) FROM effects") != jobs {
			t.Errorf("%d effects of %d jobs", n, jobs)
		}
		mu.Lock()
		defer mu.Unlock()
		for id, n := range worked {
			if n != 1 {
				t.Errorf("job %d was worked on %d times, without any fault", id, n)
			}
		}
	})
}

func TestOrder(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		now := time.Now()
		f.enqueue(Job{Kind: "k", Args: "later", RunAt: now.Add(time.Hour), Priority: 9})
		f.enqueue(Job{Kind: "k", Args: "low", Priority: -1})
		f.enqueue(Job{Kind: "k", Args: "normal"})
		f.enqueue(Job{Kind: "k", Args: "high", Priority: 5})
		f.enqueue(Job{Kind: "other", Args: "not ours", Priority: 9})
		order := make(chan string, 9)
		f.start(f.process(Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			order <- job.Args
			return nil, nil
		}}}), 1)
		for _, want := range []string{"high", "normal", "low"} {
			if got := <-order; got != want {
				t.Errorf("job %q comes where %q should", got, want)
			}
		}
		lockertest.Eventually(t, "three jobs are done", func() bool { return f.with("done") == 3 })
		if n := f.with("ready"); n != 2 {
			t.Errorf("%d jobs are ready, want the later one and the one of a kind not known here", n)
		}
	})
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
		{"bytes that PostgreSQL refuses", fails(errors.New("a\x00b\xff")), "a?b?"},
		{"a long text", fails(errors.New(strings.Repeat("é", 9999))), "é…"},
		{"a timeout", func(ctx context.Context, _ Job) (Effect, error) { <-ctx.Done(); return nil, ctx.Err() }, "deadline"},
		{"an effect's error", effect(func(ctx context.Context, tx *sqlx.Tx) error { insert(ctx, tx); return boom }), "boom"},
		{"an effect's panic", effect(func(ctx context.Context, tx *sqlx.Tx) error { insert(ctx, tx); panic("ouch") }), "panic: ouch"},
		{"an effect that the database refuses", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			insert(ctx, tx)
			_, err := tx.ExecContext(ctx, "SELECT 1 / 0")
			return err
		}), "division by zero"},
		{"an effect that ignores that", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			insert(ctx, tx)
			_, _ = tx.ExecContext(ctx, "SELECT 1 / 0")
			return nil
		}), "25P02"},
		{"refused at the commit", effect(func(ctx context.Context, tx *sqlx.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO effects VALUES (-1, -1)") // a deferred constraint
			return err
		}), "23503"},
		{"an effect that ends its transaction", effect(func(ctx context.Context, tx *sqlx.Tx) error { return tx.Rollback() }), "ended its transaction"},
	}
	eachWayAndDriver(t, func(t *testing.T, f *fixture) {
		f.exec(effects)
		f.exec("CREATE TABLE known (id bigint PRIMARY KEY); INSERT INTO known VALUES (1)")
		f.exec("ALTER TABLE effects ADD FOREIGN KEY (job_id) REFERENCES known DEFERRABLE INITIALLY DEFERRED")
		kinds, ids := Kinds{}, map[string]int64{}
		for _, tt := range tests {
			kinds[tt.name] = Kind{Work: tt.work}
			if tt.name == "a timeout" {
				kinds[tt.name] = Kind{Work: tt.work, Timeout: time.Millisecond}
			}
			ids[tt.name] = f.enqueue(Job{Kind: tt.name, MaxAttempts: 2})
		}
		f.start(f.process(kinds), 4)
		lockertest.Eventually(t, "all jobs are dead", func() bool { return f.with("dead") == len(tests) })
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

// TestSingleton: jobs of the kind never overlap, those of another do.
func TestSingleton(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		const jobs = 8
		for range jobs {
			f.enqueue(Job{Kind: "single", Priority: 1})
		}
		var inside, overlaps atomic.Int32
		meanwhile := make(chan struct{}) // closed by the first of another kind
		var once sync.Once
		f.enqueue(Job{Kind: "other"})
		kinds := Kinds{
			"single": {Singleton: true, Work: func(ctx context.Context, job Job) (Effect, error) {
				defer inside.Add(-1)
				if inside.Add(1) > 1 {
					overlaps.Add(1)
					return nil, nil
				}
				<-meanwhile // gives others the time to come in, and shows that other kinds run
				return nil, nil
			}},
			"other": {Work: func(context.Context, Job) (Effect, error) {
				once.Do(func() { close(meanwhile) })
				return nil, nil
			}},
		}
		for range 2 {
			f.start(f.process(kinds), 4)
		}
		lockertest.Eventually(t, "all are done", func() bool { return f.with("done") == jobs+1 })
		if n := overlaps.Load(); n > 0 {
			t.Errorf("%d times two jobs of a singleton kind ran at once", n)
		}
		if n := f.count("SELECT max(attempt) FROM jobs"); n != 1 {
			t.Errorf("a job needed %d attempts: what was put back counts", n)
		}
	})
}

// TestSingletonLock: the table shows no running job of the kind, as for two
// claims at once, and yet the kind is taken: the lock decides, and leaves no
// trace on the job.
func TestSingletonLock(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.enqueue(Job{Kind: "single"})
		w := f.process(Kinds{"single": {Work: record, Singleton: true}})
		lock, err := f.locks().TryLock(t.Context(), w.queue().kindKey("single"))
		if err != nil {
			t.Fatal(err)
		}
		if h, err := w.take(t.Context()); h != nil || err != nil {
			t.Errorf("take while the kind is taken: %v, %v", h, err)
		}
		if f.count("SELECT count(*) FROM jobs WHERE status = 'ready' AND attempt = 0 AND worker IS NULL") != 1 {
			t.Error("the job is not as it was")
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		mustTake(t, w).giveUp(Abandoned)
	})
}

func TestBackoff(t *testing.T) {
	for n, most := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 13: time.Hour, 1 << 30: time.Hour} {
		for range 100 {
			if d := backoff(time.Second, n); d > most || d < most/2 {
				t.Errorf("after attempt %d: %v, want %v to %v", n, d, most/2, most)
			}
		}
	}
	if d := backoff(maxBackoff, 1<<30); d <= 0 {
		t.Errorf("the longest backoff overflows: %v", d)
	}
}

// TestSingletonBacklog: more jobs of a singleton kind than a page has
// candidates, one of them in hand, do not hide the next job of another kind.
func TestSingletonBacklog(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.exec("INSERT INTO jobs (kind, priority) SELECT 'single', 1 FROM generate_series(1, $1::int)", 3*page)
		other := f.enqueue(Job{Kind: "k"})
		w := f.process(Kinds{"single": {Work: record, Singleton: true}, "k": {Work: record}})
		h := mustTake(t, w)
		defer h.giveUp(Abandoned)
		next := mustTake(t, w)
		defer next.giveUp(Abandoned)
		if h.job.Kind != "single" || next.job.ID != other {
			t.Errorf("jobs of kinds %q and %q are in hand", h.job.Kind, next.job.Kind)
		}
		if h, err := w.take(t.Context()); h != nil || err != nil {
			t.Errorf("a third: %v, %v", h, err)
		}
	})
}
