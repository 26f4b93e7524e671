package queue

import (
	"context"
	"errors"
	"testing"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// cutOff ends the database sessions that hold locks: their processes are dead,
// as far as the database knows.
func (f *fixture) cutOff() {
	f.t.Helper()
	if n := f.count(`SELECT count(pg_terminate_backend(pid)) FROM (SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS holders`); n == 0 {
		f.t.Fatal("no lock is held")
	}
	lockertest.Eventually(f.t, "their locks are free", func() bool { return f.count(advisoryLocks) == 0 })
}

func mustTake(t *testing.T, w Way) *hold {
	t.Helper()
	h, err := w.take(t.Context())
	if err != nil || h == nil {
		t.Fatalf("take: %v, %v", h, err)
	}
	return h
}

// returned reaps until n jobs have come back; those of AdvisoryLock are back by
// themselves.
func returned(t *testing.T, w Way, n int64) {
	t.Helper()
	s, ok := w.(*skipLocked)
	if !ok {
		return
	}
	lockertest.Eventually(t, "the jobs of the dead worker come back", func() bool {
		got, err := s.reapOnce(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n -= got
		return n == 0
	})
}

// A worker loses its lock in the middle of a job that ignores its context.
// Another worker does the job. The late completion is rejected.
func TestLostWorker(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.exec(effects)
		f.enqueue(Job{Kind: "k"})
		began, goOn, lostAt := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		ended := make(chan Outcome, 1)
		f.start(f.process(Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			if job.Attempt > 1 { // it may be the one to do it again, too
				return record(ctx, job)
			}
			close(began)
			<-ctx.Done()
			lostAt <- context.Cause(ctx)
			<-goOn
			return record(ctx, job)
		}}}, WithEnded(func(job Job, o Outcome) {
			if job.Attempt == 1 {
				ended <- o
			}
		})), 1)
		<-began
		f.cutOff()
		f.start(f.process(Kinds{"k": {Work: record}}), 1)
		lockertest.Eventually(t, "somebody else has done it", func() bool { return f.with("done") == 1 })
		if err := <-lostAt; !errors.Is(err, sqllock.ErrLost) {
			t.Errorf("the work's context ended with %v", err)
		}
		close(goOn)
		if o := <-ended; o != Abandoned {
			t.Errorf("the first attempt is %v, want abandoned", o)
		}
		if n, attempt := f.count("SELECT count(*) FROM effects"), f.count("SELECT min(attempt) FROM effects"); n != 1 || attempt != 2 {
			t.Errorf("%d effects, the first of attempt %d; want one, of attempt 2", n, attempt)
		}
	})
}

// A process freezes after it has looked at its lock. The fence and the attempt's
// number each reject its completion alone.
func TestLateCompletion(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(late, now *hold) // takes the other barrier away
		want  func(error) bool
	}{
		{"attempt number", func(late, _ *hold) { late.fence = nil }, func(err error) bool { return errors.Is(err, errSuperseded) }},
		{"fence", func(late, now *hold) { late.job.Attempt = now.job.Attempt }, func(err error) bool {
			return errors.Is(err, sqllock.ErrLost) || errors.Is(err, sqllock.ErrFenced)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			eachWay(t, func(t *testing.T, f *fixture) {
				f.exec(effects)
				f.enqueue(Job{Kind: "k"})
				kinds := Kinds{"k": {Work: record, Singleton: true}} // so that SkipLocked has a fence, too
				a, b := f.process(kinds), f.process(kinds)
				late := mustTake(t, a)
				f.cutOff()
				returned(t, b, 1)
				var now *hold
				lockertest.Eventually(t, "b takes it over", func() bool {
					var err error
					now, err = b.take(t.Context())
					return err == nil && now != nil
				})
				tt.spoil(late, now)
				effect, _ := record(t.Context(), late.job)
				if err := a.queue().complete(t.Context(), late, effect); !tt.want(err) {
					t.Errorf("the late completion: %v", err)
				}
				if n := f.count("SELECT count(*) FROM effects"); n != 0 || f.with("done") != 0 {
					t.Errorf("the late completion has %d effects, and the job may be done", n)
				}
				b.queue().run(t.Context(), now)
				if n := f.count("SELECT count(*) FROM effects"); n != 1 || f.with("done") != 1 {
					t.Errorf("after the one in time there are %d effects", n)
				}
			})
		})
	}
}

// The reaper leaves a living worker's job alone, however old.
func TestOldIsNotDead(t *testing.T) {
	f := newFixture(t, "pgx", pgtest.Database(t), SkipLocked)
	f.enqueue(Job{Kind: "k"})
	kinds := Kinds{"k": {Work: record}}
	a, b := f.process(kinds).(*skipLocked), f.process(kinds).(*skipLocked)
	h := mustTake(t, a)
	f.exec("UPDATE jobs SET claimed_at = now() - interval '1 year'")
	for _, w := range []*skipLocked{a, b} {
		if n, err := w.reapOnce(t.Context()); n != 0 || err != nil {
			t.Errorf("reaped %d jobs of a living worker, %v", n, err)
		}
	}
	h.giveUp(Done)
	a.close()
	if n, err := b.reapOnce(t.Context()); n != 1 || err != nil {
		t.Errorf("reaped %d jobs of a worker that is gone, %v; want 1", n, err)
	}
}

// A claim was stored and its response lost. The job comes back although its
// worker lives on, but not before the worker's other jobs are settled.
func TestClaimWithoutAnswer(t *testing.T) {
	f := newFixture(t, "pgx", pgtest.Database(t), SkipLocked)
	known := f.enqueue(Job{Kind: "k", Priority: 1})
	f.enqueue(Job{Kind: "k"})
	f.exec("UPDATE jobs SET claimed_at = now() - interval '1 minute'")
	w := f.process(Kinds{"k": {Work: record}}).(*skipLocked)
	other := f.process(Kinds{"k": {Work: record}}).(*skipLocked)
	h := mustTake(t, w)
	me, err := w.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.exec("UPDATE jobs SET status = 'running', worker = $1, claimed_at = now() - interval '1 minute' WHERE id <> $2", me.id, known)
	w.leave(me, true)
	if n, err := other.reapOnce(t.Context()); n != 0 || err != nil {
		t.Errorf("reaped %d jobs while the worker has one in hand, %v", n, err)
	}
	if again, err := w.enter(t.Context()); err != nil || again == me {
		t.Errorf("it still claims under the old identity, %v", err)
	}
	h.giveUp(w.q.settle(t.Context(), h, nil, nil))
	if n, err := other.reapOnce(t.Context()); n != 1 || err != nil {
		t.Errorf("reaped %d jobs, %v; want the one that no process knows of", n, err)
	}
	if f.with("done") != 1 || f.with("ready") != 1 {
		t.Error("want one job done and one ready")
	}
}

// TestPoison: a job that ended its worker as often as it may be tried is not
// tried again.
func TestPoison(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.enqueue(Job{Kind: "k", MaxAttempts: 2})
		f.exec("UPDATE jobs SET attempt = 2")
		f.start(f.process(Kinds{"k": {Work: func(context.Context, Job) (Effect, error) {
			t.Error("it was tried again")
			return nil, nil
		}}}), 1)
		lockertest.Eventually(t, "it is dead", func() bool { return f.with("dead") == 1 })
	})
}

// Run waits for the job in progress, which goes on undisturbed.
func TestStop(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.enqueue(Job{Kind: "k"})
		began, goOn := make(chan struct{}), make(chan struct{})
		w := f.process(Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			close(began)
			<-goOn
			return nil, ctx.Err()
		}}})
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { Run(ctx, w, 2); close(stopped) }()
		<-began
		stop()
		select {
		case <-stopped:
			t.Error("Run did not wait for the job in hand")
		default:
		}
		close(goOn)
		<-stopped
		if f.with("done") != 1 || f.count(advisoryLocks) != 0 {
			t.Error("the job in hand was not finished, or its lock not given back")
		}
	})
}

// TestBrokenPool: the database's pool of the queue is broken while an effect is
// stored, the session with the locks is not: the work is not done again.
func TestBrokenPool(t *testing.T) {
	eachWay(t, func(t *testing.T, f *fixture) {
		f.exec(effects)
		f.enqueue(Job{Kind: "k"})
		worked, tries := 0, 0
		f.start(f.process(Kinds{"k": {Work: func(ctx context.Context, job Job) (Effect, error) {
			worked++
			stored, _ := record(ctx, job)
			return func(ctx context.Context, tx *sqlx.Tx) error {
				if err := stored(ctx, tx); err != nil {
					return err
				}
				if tries++; tries == 1 {
					_, _ = tx.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
				}
				return nil
			}, nil
		}}}), 1)
		lockertest.Eventually(t, "it is done", func() bool { return f.with("done") == 1 })
		if n := f.count("SELECT count(*) FROM effects"); worked != 1 || tries != 2 || n != 1 {
			t.Errorf("worked %d times, stored %d times, %d effects; want 1, 2, 1", worked, tries, n)
		}
	})
}
