package queue

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// SkipLocked returns the Way that takes a job with one statement, which marks
// it as running by this worker. The worker holds one lock for as long as it
// lives, however many jobs it has. So the reaper of any other worker finds the
// jobs that a dead worker has left. A singleton kind has a lock in addition.
//
// SkipLocked panics if q or locks is nil.
func SkipLocked(q *Queue, locks Locks) Way {
	if q == nil || locks == nil {
		panic("queue: SkipLocked needs a Queue and locks")
	}
	return &skipLocked{q: q, locks: locks}
}

type skipLocked struct {
	q     *Queue
	locks Locks

	mu sync.Mutex // protects me, and jobs and retired of every identity; never held across I/O
	me *identity  // nil before the first job
}

func (w *skipLocked) queue() *Queue { return w.q }

func (w *skipLocked) take(ctx context.Context) (*hold, error) {
	me, err := w.enter(ctx)
	if err != nil {
		return nil, safe(err)
	}
	h, err := w.claim(ctx, me)
	if h == nil {
		w.leave(me, err != nil) // a claim without a response may have been stored
	}
	return h, safe(err)
}

// claim takes a job in one statement. Two workers never get the same job, and
// neither waits for the other. It leaves out singleton kinds that look busy;
// their lock decides.
const claim = `UPDATE jobs SET status = 'running', worker = $1, claimed_at = now(), attempt = attempt + 1
	WHERE id = (
		SELECT id FROM jobs
		WHERE status = 'ready' AND run_at <= now() AND kind = ANY($2::text[]) AND kind <> ALL($4::text[])
			AND kind <> ALL(ARRAY(SELECT kind FROM jobs WHERE status = 'running' AND kind = ANY($3::text[])))
		ORDER BY priority DESC, run_at, id
		LIMIT 1 FOR UPDATE SKIP LOCKED)
	RETURNING ` + columns

func (w *skipLocked) claim(ctx context.Context, me *identity) (*hold, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var busy []string // singleton kinds that other workers have
	for {
		h := &hold{status: "running", lock: me.lock, giveUp: func(o Outcome) { w.leave(me, o == Abandoned) }}
		err := w.q.db.GetContext(ctx, &h.job, claim, me.id, w.q.names, w.q.singletons, literal(busy))
		if errors.Is(err, sql.ErrNoRows) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		err = w.alone(ctx, h)
		if err == nil {
			return h, nil
		}
		if putErr := w.putBack(ctx, me, h.job); putErr != nil || !errors.Is(err, sqllock.ErrHeld) {
			return nil, errors.Join(err, putErr)
		}
		busy = append(busy, h.job.Kind)
	}
}

// alone acquires the lock of a singleton kind.
func (w *skipLocked) alone(ctx context.Context, h *hold) error {
	if !w.q.kinds[h.job.Kind].Singleton {
		return nil
	}
	lock, err := w.locks.TryLock(ctx, w.q.kindKey(h.job.Kind))
	if err != nil {
		return err
	}
	leave := h.giveUp
	h.single, h.fence = lock, lock
	h.giveUp = func(o Outcome) {
		_ = lock.Unlock()
		leave(o)
	}
	return nil
}

// putBack undoes a claim.
func (w *skipLocked) putBack(ctx context.Context, me *identity, job Job) error {
	_, err := w.q.db.ExecContext(ctx, `UPDATE jobs SET status = 'ready', worker = NULL, attempt = attempt - 1
		WHERE id = $1 AND status = 'running' AND worker = $2 AND attempt = $3`, job.ID, me.id, job.Attempt)
	return err
}

// An identity is what claims jobs: a number that is never used again, and its lock.
// While the lock is held, the identity's jobs belong to a living worker.
//
// Invariant: a job that runs under an identity, and that this process does not know
// of, becomes free, because the identity's lock ends:
//
//   - with the process,
//   - with the session, when the lock is lost,
//   - when the identity retires, after a claim or a return without a response. It then
//     claims no more jobs, and is unlocked with its last job.
type identity struct {
	id      int64
	lock    *sqllock.Lock
	jobs    int // claims under way and jobs in hand
	retired bool
}

// enter returns the identity to claim one job with. The caller must call leave.
func (w *skipLocked) enter(ctx context.Context) (*identity, error) {
	if me := w.current(nil); me != nil {
		return me, nil
	}
	id := rand.Int64() //nolint:gosec // it need not be secret, only unlikely to repeat
	lock, err := w.locks.TryLock(ctx, w.q.workerKey(id))
	if err != nil {
		return nil, err
	}
	fresh := &identity{id: id, lock: lock}
	me := w.current(fresh)
	if me != fresh { // another goroutine was first
		_ = lock.Unlock()
	}
	return me, nil
}

// current returns the identity in use, with one job more. It is fresh if there
// is none in use that is good.
func (w *skipLocked) current(fresh *identity) *identity {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.me == nil || w.me.retired || w.me.lock.Err() != nil {
		w.me = fresh
	}
	if w.me != nil {
		w.me.jobs++
	}
	return w.me
}

// leave ends enter. doubt says that the table may name me as the worker of a job
// that me does not run.
func (w *skipLocked) leave(me *identity, doubt bool) {
	w.mu.Lock()
	me.jobs--
	me.retired = me.retired || doubt
	last := me.jobs == 0 && me.retired
	w.mu.Unlock()
	if last {
		_ = me.lock.Unlock()
	}
}

func (w *skipLocked) close() {
	if w.me != nil {
		_ = w.me.lock.Unlock()
	}
}

func (w *skipLocked) reap(ctx context.Context) {
	var t trouble
	for wait(ctx, w.q.options.floor) {
		n, err := w.reapOnce(ctx)
		t.note(w.q, err)
		if n > 0 {
			w.q.options.log.Info("queue: returned jobs of workers that are gone", "jobs", n)
		}
	}
}

// reapOnce returns the jobs of workers whose lock is free. Such a worker is
// dead, or the server takes it for dead. That is as good: its completion is
// rejected, since the next attempt has another number. A worker's age says
// nothing.
func (w *skipLocked) reapOnce(ctx context.Context) (returned int64, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var workers []int64
	err = w.q.db.SelectContext(ctx, &workers, `SELECT DISTINCT worker FROM jobs WHERE status = 'running'
		AND claimed_at <= now() - $1::float8 * interval '1 second' AND worker IS NOT NULL`, w.q.options.floor.Seconds())
	if err != nil {
		return 0, safe(err)
	}
	for _, worker := range workers {
		n, err := w.returnJobs(ctx, worker)
		returned += n
		if err != nil && !errors.Is(err, sqllock.ErrHeld) {
			return returned, safe(err)
		}
	}
	return returned, nil
}

// returnJobs returns all jobs of a worker. It returns ErrHeld if the worker lives.
func (w *skipLocked) returnJobs(ctx context.Context, worker int64) (n int64, err error) {
	err = sqllock.Do(ctx, w.locks, w.q.workerKey(worker), func(ctx context.Context) error {
		result, err := w.q.db.ExecContext(ctx, `UPDATE jobs SET status = 'ready', worker = NULL
			WHERE status = 'running' AND worker = $1`, worker)
		if err == nil {
			n, err = result.RowsAffected()
		}
		return err
	})
	return n, err
}

// wait waits for d. It returns false, at once, if ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
