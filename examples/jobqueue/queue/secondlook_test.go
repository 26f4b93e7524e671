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

// TestSecondLook: another process has a job, and finishes it, after we have seen
// it and before we have its lock. What begins a job without a second look under
// the lock runs it twice.
func TestSecondLook(t *testing.T) {
	f := newFixture(t, "pgx", pgtest.Database(t), AdvisoryLock)
	f.enqueue(Job{Kind: "k", Priority: 1})
	second := f.enqueue(Job{Kind: "k"})
	kinds := Kinds{"k": {Work: func(context.Context, Job) (Effect, error) { return nil, nil }}}
	other := f.process(kinds)
	locks := &late{Locks: f.locks(), meanwhile: func() { other.queue().run(t.Context(), mustTake(t, other)) }}
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
