package queue

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A worker loses its lock in the middle of a job that ignores its context.
// Another worker does the job. The late completion is rejected.
func TestLostWorker(t *testing.T) {
	f := onDatabase(t)
	f.enqueue(Job{Kind: "k"})
	began, goOn, lostAt := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	ended := make(chan Outcome, 1)
	f.start(f.queue(Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
		if job.Attempt > 1 { // it may be the one to do it again, too
			return record(ctx, job)
		}
		close(began)
		<-ctx.Done()
		lostAt <- context.Cause(ctx)
		<-goOn
		return record(ctx, job)
	}}}, func(job Job, o Outcome) {
		if job.Attempt == 1 {
			ended <- o
		}
	}), 1)
	<-began
	f.cutOff()
	f.start(f.queue(Kinds{"k": {Work: record}}), 1)
	lockertest.Eventually(t, "another worker has done it", func() bool { return f.withStatus("done") == 1 })
	if err := <-lostAt; !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("the work's context ended with %v", err)
	}
	close(goOn)
	if o := <-ended; o != Abandoned {
		t.Errorf("the first attempt is %v, want abandoned", o)
	}
	f.wantEffects(1)
}

// A process freezes after it has looked at its lock. The fence and the attempt's
// number each reject its completion alone.
func TestLateCompletion(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(late, now *hold) // takes the other barrier away
		want  []error
	}{
		"attempt number": {func(late, now *hold) { late.lock = now.lock }, []error{errSuperseded}},
		"fence":          {func(late, now *hold) { late.job.Attempt = now.job.Attempt }, []error{sqllock.ErrLost, sqllock.ErrFenced}},
	} {
		t.Run(name, func(t *testing.T) {
			f := onDatabase(t)
			f.enqueue(Job{Kind: "k"})
			a, b := f.queue(Kinds{"k": {Work: record}}), f.queue(Kinds{"k": {Work: record}})
			late := f.mustTake(a)
			f.cutOff()
			var now *hold
			lockertest.Eventually(t, "b takes it over", func() bool {
				var err error
				now, err = b.take(t.Context())
				return err == nil && now != nil
			})
			tt.spoil(late, now)
			effect, _ := record(t.Context(), late.job)
			err := a.complete(t.Context(), late, effect)
			if !errors.Is(err, tt.want[0]) && !errors.Is(err, tt.want[len(tt.want)-1]) {
				t.Errorf("the late completion: %v", err)
			}
			f.wantEffects(0)
			b.run(t.Context(), now)
			f.wantEffects(1)
		})
	}
}

// Run waits for the job in progress, which goes on undisturbed.
func TestStop(t *testing.T) {
	f := onDatabase(t)
	f.enqueue(Job{Kind: "k"})
	began, goOn, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
	q := f.queue(Kinds{"k": {Work: func(ctx context.Context, _ Job) (Effect, error) {
		close(began)
		<-goOn
		return nil, ctx.Err()
	}}})
	ctx, stop := context.WithCancel(t.Context())
	go func() { q.Run(ctx, 2); close(stopped) }()
	<-began
	stop()
	select {
	case <-stopped:
		t.Error("Run did not wait for the job in progress")
	default:
	}
	close(goOn)
	<-stopped
	if f.withStatus("done") != 1 || dbtest.AdvisoryLocks(t, f.db.DB) != 0 {
		t.Error("the job was not finished, or its lock not released")
	}
}

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

// Another process has a job, and finishes it, after this one has seen it and before
// it has its lock. Without a second look under the lock the job would run twice.
func TestSecondLook(t *testing.T) {
	f := onDatabase(t)
	f.enqueue(Job{Kind: "k", Priority: 1})
	second := f.enqueue(Job{Kind: "k"})
	kinds := Kinds{"k": {Work: record}}
	other := f.queue(kinds)
	locks := &late{Locks: dbtest.Session(t, f.driver, f.dsn), meanwhile: func() { other.run(t.Context(), f.mustTake(other)) }}
	h := f.mustTake(f.with(locks, kinds))
	if h.job.ID != second {
		t.Errorf("take: job %d; want the one that is not done yet", h.job.ID)
	}
	h.release()
}
