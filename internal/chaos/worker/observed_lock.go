package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// LookEvery is how often a holder looks whether its lock is still held, unless
// Config.Look says otherwise.
const LookEvery = 500 * time.Microsecond

// An ObservedLock is a lock with what its holder sees of it. It is for one
// goroutine.
type ObservedLock struct {
	*sqllock.Lock
	Hold history.Hold // so far; all of it after GiveBack

	told    atomic.Int64 // the first moment at which the loss was known; 0: no loss
	lost    func()       // counts the loss
	counted sync.Once
}

// Observe begins to observe lock, which this process was just granted, under
// the given number. A holder that listens is told of a loss by the lock's
// context alone. For another one, the lock's hook counts as much as Err.
//
// A loss calls lost once, maybe on another goroutine. That is when the lock's hook
// runs, or earlier, when a holder that listens is notified. It does not wait
// for the holder, which may be busy until after the next fault.
func Observe(lock *sqllock.Lock, process int, number int64, listens bool, lost func()) *ObservedLock {
	w := &ObservedLock{Lock: lock, lost: lost}
	w.Hold = history.Hold{Process: process, Key: lock.Key().Int64(), Lock: number, Listens: listens, From: history.Now()}
	lock.SetName(lockName(number))
	if !listens {
		lock.OnEnd(func(cause error) {
			if !errors.Is(cause, sqllock.ErrReleased) {
				w.markLost()
			}
		})
	}
	return w
}

// markLost notes that the holder was told of the loss now, or earlier.
func (w *ObservedLock) markLost() {
	w.counted.Do(w.lost)
	w.told.CompareAndSwap(0, int64(history.Now()))
}

// Told reports whether the holder was told of a loss.
func (w *ObservedLock) Told() bool { return w.told.Load() != 0 }

// Lost reports whether the lock was lost. It is valid after GiveBack.
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

// Listen waits until the lock's context ends, or ctx, and then looks once.
func (w *ObservedLock) Listen(ctx context.Context) {
	select {
	case <-w.Context().Done():
		w.markLost()
	case <-ctx.Done():
	}
	w.Look()
}

// LookOn goes on looking at a lost lock, for d or until ctx ends. The lock must
// not become valid again.
func (w *ObservedLock) LookOn(ctx context.Context, d time.Duration) {
	for end := history.Now() + history.Moment(d); history.Now() < end; {
		w.Look()
		if Pause(ctx, 4*LookEvery) != nil {
			return
		}
	}
}

// GiveBack unlocks the lock and returns what was seen of it. It looks at a lost
// lock once more right before.
func (w *ObservedLock) GiveBack() history.Hold {
	if w.Told() {
		w.Look()
	}
	w.Hold.UnlockBegin = history.Now()
	w.Hold.Unlock = ResultOf(w.Unlock())
	w.Hold.Ended = history.Now()
	w.Hold.Told = history.Moment(w.told.Load())
	if w.Lost() {
		w.counted.Do(w.lost)
	}
	return w.Hold
}
