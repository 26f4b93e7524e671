package queue

import (
	"context"
	"math/rand/v2"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An identity is who claims jobs: a number that is never used again, and the lock on it,
// which says that its jobs are in somebody's hands.
//
// Invariant: jobs that are running under an identity and that this process does not
// know of become free, since their identity's lock ends: with the process, with the
// session (a loss), or, after a claim or a return without an answer, when the
// identity retires: it claims no more, and unlocks with its last job.
type identity struct {
	id      int64
	lock    *sqllock.Lock
	jobs    int // claims under way and jobs in hand
	retired bool
}

// enter is the identity to claim with, for one job. leave follows.
func (w *skipLocked) enter(ctx context.Context) (*identity, error) {
	if me := w.current(nil); me != nil {
		return me, nil
	}
	id := rand.Int64() //nolint:gosec // it need not be secret, but unlikely twice
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

// current is the identity in use, with one job more, or fresh if there is none that is
// good.
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

// leave ends enter. doubt: the table may say of a job that me runs it, which is not so.
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
