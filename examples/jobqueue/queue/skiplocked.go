package queue

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/latchkey-go/latchkey/sqllock"
)

// SkipLocked shares the jobs out by one statement that marks the next one as running, by
// this worker. The worker holds one lock for as long as it lives, whatever number of jobs
// it has: by that, the reaper of any other finds which jobs a dead worker has left. A
// kind that is a singleton has a lock on top.
//
// It panics if q or locks is nil.
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
		w.leave(me, err != nil) // the claim of which we have no answer may have been stored
	}
	return h, safe(err)
}

// claim is the claim in one statement: two workers never get one job, and neither waits
// for the other. It leaves out singleton kinds that look busy; their lock decides.
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
	var busy []string // singleton kinds that somebody else holds
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

// alone takes the lock of a singleton kind.
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
