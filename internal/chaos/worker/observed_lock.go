package worker

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An observedLock is a lock with what its holder sees of it. It is for one
// goroutine.
type observedLock struct {
	*sqllock.Lock
	hold history.Hold // so far; all of it after giveBack

	told    atomic.Int64 // the first moment at which the loss was known; 0: no loss
	counted func()       // counts the loss, once
}

// observe begins to observe lock, which this process was just granted, under the
// given number.
//
// A loss is counted at once, maybe on another goroutine. It does not wait for the
// holder, which may be busy until after the next fault. The lock's hook counts as
// much as Err, but for a holder that listens: it is told by the lock's context
// alone.
func (w *work) observe(lock *sqllock.Lock, number int64) *observedLock {
	l := &observedLock{Lock: lock, counted: sync.OnceFunc(func() { w.lost.Add(1) })}
	l.hold = history.Hold{Process: w.config.Process, Key: lock.Key().Int64(), Lock: number, From: history.Now()}
	return l
}

// hook has the lock's hook tell the holder.
func (l *observedLock) hook() {
	l.OnEnd(func(cause error) {
		if !errors.Is(cause, sqllock.ErrReleased) {
			l.markLost()
		}
	})
}

// markLost notes that the holder was told of the loss now, or earlier.
func (l *observedLock) markLost() {
	l.counted()
	l.told.CompareAndSwap(0, int64(history.Now()))
}

func (l *observedLock) lost() bool { return l.told.Load() != 0 }

// look reports whether the lock is held, by its Err.
func (l *observedLock) look() bool {
	before := history.Now()
	if l.Err() != nil {
		l.markLost()
		return false
	}
	l.hold.Valid = before
	return true
}

// giveBack unlocks the lock and completes what was seen of it. It looks at a lost
// lock once more right before.
func (l *observedLock) giveBack() {
	if l.lost() {
		l.look()
	}
	l.hold.UnlockBegin = history.Now()
	l.hold.Unlock = ResultOf(l.Unlock())
	l.hold.Ended = history.Now()
	l.hold.Told = history.Moment(l.told.Load())
	if l.hold.Unlock == history.Lost {
		l.counted()
	}
}
