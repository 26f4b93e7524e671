package nemesis

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A diary is a history in memory: what guests saw of a place where the fleet is
// not.
type diary struct {
	mu     sync.Mutex // protects what follows
	events []history.Event
	locks  int64 // numbers them
}

func (d *diary) note(e history.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// take returns what was noted since it was called last. Numbers of locks go on.
func (d *diary) take() []history.Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	events := d.events
	d.events = nil
	return events
}

// A kept is a lock while it is kept, and what was seen of it. look, stay and
// giveBack are for one goroutine.
type kept struct {
	*sqllock.Lock
	diary *diary
	hold  history.Hold
	told  atomic.Int64 // the first moment at which the loss was known; 0: no loss
}

// keep begins to note what is seen of lock, which was granted to a guest.
func (d *diary) keep(process int, lock *sqllock.Lock) *kept {
	d.mu.Lock()
	d.locks++
	number := d.locks
	d.mu.Unlock()
	k := &kept{Lock: lock, diary: d}
	k.hold = history.Hold{Process: process, Key: lock.Key().Int64(), Lock: number, From: history.Now()}
	lock.OnEnd(func(cause error) {
		if !errors.Is(cause, sqllock.ErrReleased) {
			k.tell()
		}
	})
	return k
}

func (k *kept) tell() { k.told.CompareAndSwap(0, int64(history.Now())) }

// look reports whether the lock is held.
func (k *kept) look() bool {
	before := history.Now()
	if k.Err() != nil {
		k.tell()
		return false
	}
	k.hold.Valid = before
	return true
}

// lookEvery is how often one who keeps a lock asks whether it is still held.
const lookEvery = 500 * time.Microsecond

// stay keeps the lock until it is lost or ctx has ended.
func (k *kept) stay(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for k.look() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// giveBack ends the lock and what is noted of it.
func (k *kept) giveBack() {
	k.hold.UnlockBegin = history.Now()
	k.hold.Unlock = resultOf(k.Unlock())
	k.hold.Ended = history.Now()
	k.hold.Told = history.Moment(k.told.Load())
	k.diary.note(history.Event{Hold: &k.hold})
}
