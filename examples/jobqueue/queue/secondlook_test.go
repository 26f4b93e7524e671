package queue

import (
	"context"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// late calls meanwhile between the candidates and their locks, once.
type late struct {
	Locks
	once      sync.Once
	meanwhile func()
}

func (l *late) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	l.once.Do(l.meanwhile)
	return l.Locks.TryAny(ctx, keys...)
}

// TestSecondLook: another process has a job, and finishes it, after we have
// seen it and before we have its lock. What begins a job without a second look
// under the lock runs it twice.
func TestSecondLook(t *testing.T) {
	tests := []struct {
		name  string
		begin func(context.Context, *advisoryLock, int64) (Job, error)
		want  int // how often the job is worked on
	}{
		{"with it", func(ctx context.Context, w *advisoryLock, id int64) (Job, error) { return w.begin(ctx, id) }, 1},
		{"incorrect: without it", beginIncorrectly, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, "pgx", pgtest.Database(t), AdvisoryLock)
			id := f.enqueue(Job{Kind: "k"})
			worked := 0
			kinds := Kinds{"k": {Work: func(context.Context, Job) (Effect, error) {
				worked++
				return nil, nil
			}}}
			other := f.process(kinds)
			locks := &late{Locks: f.locks(), meanwhile: func() {
				h, err := other.take(t.Context())
				if err != nil || h == nil {
					t.Fatalf("the other process gets %v, %v", h, err)
				}
				other.queue().run(t.Context(), h)
			}}
			w := f.way(f.queue(kinds), locks).(*advisoryLock)
			jobs, err := w.candidates(t.Context(), nil, 0)
			if err != nil || len(jobs) != 1 {
				t.Fatalf("candidates: %v, %v", jobs, err)
			}
			lock, err := locks.TryAny(t.Context(), w.lockKey(jobs[0]))
			if err != nil {
				t.Fatalf("the lock of the finished job is not free: %v", err)
			}
			defer lock.Unlock()
			if job, err := tt.begin(t.Context(), w, id); err == nil {
				w.q.run(t.Context(), &hold{job: job, status: "ready", lock: lock, fence: lock, giveUp: func(Outcome) {}})
			}
			if worked != tt.want {
				t.Errorf("the job was worked on %d times, want %d", worked, tt.want)
			}
		})
	}
}

// beginIncorrectly trusts the first look.
func beginIncorrectly(ctx context.Context, w *advisoryLock, id int64) (job Job, err error) {
	err = w.q.db.GetContext(ctx, &job, "SELECT "+columns+" FROM jobs WHERE id = $1", id)
	return job, err
}

// TestTakeLooksAgain is the same through take.
func TestTakeLooksAgain(t *testing.T) {
	f := newFixture(t, "pgx", pgtest.Database(t), AdvisoryLock)
	f.enqueue(Job{Kind: "k", Priority: 1})
	second := f.enqueue(Job{Kind: "k"})
	kinds := Kinds{"k": {Work: func(context.Context, Job) (Effect, error) { return nil, nil }}}
	other := f.process(kinds)
	locks := &late{Locks: f.locks(), meanwhile: func() {
		if h, err := other.take(t.Context()); err == nil && h != nil {
			other.queue().run(t.Context(), h)
		}
	}}
	h, err := f.way(f.queue(kinds), locks).take(t.Context())
	if err != nil || h == nil || h.job.ID != second {
		t.Fatalf("take: %v, %v; want the job that is not done yet", h, err)
	}
	h.giveUp(Abandoned)
}

// TestPages: more jobs in hand than a page has candidates do not hide the next one.
func TestPages(t *testing.T) {
	f := newFixture(t, "pgx", pgtest.Database(t), AdvisoryLock)
	f.exec("INSERT INTO jobs (kind) SELECT 'k' FROM generate_series(1, $1::int)", page+10)
	w := f.process(Kinds{"k": {Work: record}})
	for i := range page + 10 {
		h, err := w.take(t.Context())
		if err != nil || h == nil {
			t.Fatalf("job %d: %v, %v", i, h, err)
		}
		defer h.giveUp(Abandoned)
	}
	if h, err := w.take(t.Context()); err != nil || h != nil {
		t.Errorf("all jobs are in hand, and take gives %v, %v", h, err)
	}
	lockertest.Eventually(t, "all locks show", func() bool { return f.count(advisoryLocks) == page+10 })
}

const advisoryLocks = `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`
