package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// LookEvery is how often one who asks looks whether the lock is still held.
const LookEvery = 500 * time.Microsecond

// A ObservedLock is a lock while somebody has it, and what that one sees of it. It is
// for one goroutine.
type ObservedLock struct {
	*sqllock.Lock
	Hold history.Hold // so far; all of it after GiveBack

	told atomic.Int64 // the first moment at which the loss was known; 0: no loss
}

// Observe begins to see lock, which was just granted, as the hold of this
// process and number. One who listens is told of a loss by the lock's context
// alone; to another the lock's hook is as good as Err.
func Observe(lock *sqllock.Lock, process int, number int64, listens bool) *ObservedLock {
	w := &ObservedLock{Lock: lock}
	w.Hold = history.Hold{Process: process, Key: lock.Key().Int64(), Lock: number, Listens: listens, From: history.Now()}
	if !listens {
		lock.OnEnd(func(cause error) {
			if !errors.Is(cause, sqllock.ErrReleased) {
				w.markLost()
			}
		})
	}
	return w
}

// tell notes that the loss is known now.
func (w *ObservedLock) markLost() { w.told.CompareAndSwap(0, int64(history.Now())) }

// Told reports whether the loss is known.
func (w *ObservedLock) Told() bool { return w.told.Load() != 0 }

// Lost reports whether the lock was lost, after GiveBack.
func (w *ObservedLock) Lost() bool { return w.Told() || w.Hold.Unlock == history.Lost }

// Look reports whether the lock is held, by its Err.
func (w *ObservedLock) Look() bool {
	before := history.Now()
	if w.Err() != nil {
		w.markLost()
		return false
	}
	w.Hold.Valid = before
	return true
}

// Listen waits until the lock's context ends, or ctx, and looks once after it.
func (w *ObservedLock) Listen(ctx context.Context) {
	select {
	case <-w.Context().Done():
		w.markLost()
	case <-ctx.Done():
	}
	w.Look()
}

// LookOn goes on looking at a lock that was lost, for d or until ctx ends: it
// must not come back.
func (w *ObservedLock) LookOn(ctx context.Context, d time.Duration) {
	for end := history.Now() + history.Moment(d); history.Now() < end; {
		w.Look()
		if Pause(ctx, 4*LookEvery) != nil {
			return
		}
	}
}

// GiveBack ends the lock and what is seen of it. One that was lost is looked at
// right before.
func (w *ObservedLock) GiveBack() history.Hold {
	if w.Told() {
		w.Look()
	}
	w.Hold.UnlockBegin = history.Now()
	w.Hold.Unlock = ResultOf(w.Unlock())
	w.Hold.Ended = history.Now()
	w.Hold.Told = history.Moment(w.told.Load())
	return w.Hold
}
