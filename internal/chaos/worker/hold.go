package worker

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// lookEvery is how often a holder asks whether it still holds.
const lookEvery = 500 * time.Microsecond

// A holder is one lock while it is held.
type holder struct {
	lock *sqllock.Lock
	hold history.Hold
	told atomic.Int64 // the first moment at which the loss was known; 0: no loss
}

// hold keeps lock for a while, gives it back, and notes what it saw.
func (c *caller) hold(draining context.Context, lock *sqllock.Lock, number int64) {
	h := &holder{lock: lock, hold: history.Hold{Process: c.w.orders.Process, Key: lock.Key().Int64(), Lock: number}}
	lock.OnEnd(func(cause error) {
		if !errors.Is(cause, sqllock.ErrReleased) {
			h.tell()
		}
	})
	h.hold.From = history.Now()
	if h.look(h.hold.From) {
		begun := h.hold
		c.w.note(history.Event{Hold: &begun})
		if c.chance(25) {
			c.listen(draining, h)
		} else {
			c.stay(draining, h)
		}
	}
	h.hold.UnlockBegin = history.Now()
	h.hold.Unlock = resultOf(lock.Unlock())
	h.hold.Ended = history.Now()
	if h.hold.Told = history.Moment(h.told.Load()); h.hold.Told != 0 {
		c.w.counts.lost.Add(1)
	}
	c.w.note(history.Event{Hold: &h.hold})
}

// tell notes that the loss is known now.
func (h *holder) tell() { h.told.CompareAndSwap(0, int64(history.Now())) }

// look reports whether the lock is held. before is a moment before the call.
func (h *holder) look(before history.Moment) bool {
	if h.lock.Err() != nil {
		h.tell()
		return false
	}
	h.hold.Valid = before
	return true
}

// length is how long a lock is held, if it is not lost: a moment mostly, and
// sometimes longer than a lease, so that faults find somebody who holds on.
func (c *caller) length() time.Duration {
	switch n := c.rng.IntN(100); {
	case n < 1:
		return c.upTo(2 * c.w.orders.Lease)
	case n < 4:
		return c.upTo(time.Second)
	default:
		return c.upTo(30 * time.Millisecond)
	}
}

// listen is what a holder does that relies on its context alone, and so must be
// told.
func (c *caller) listen(draining context.Context, h *holder) {
	timer := time.NewTimer(c.length())
	defer timer.Stop()
	select {
	case <-h.lock.Context().Done():
		h.tell()
	case <-timer.C:
	case <-draining.Done():
	}
	h.look(history.Now())
}

// stay is what a holder does while it holds: it looks, also at the very end,
// and some write now and then.
func (c *caller) stay(draining context.Context, h *holder) {
	writes, writeAt := c.chance(20), h.hold.From
	end := h.hold.From + history.Moment(c.length())
	for now := h.hold.From; h.look(now) && now < end && draining.Err() == nil; now = history.Now() {
		if writes && now >= writeAt {
			c.write(h)
			writeAt = history.Now() + history.Moment(c.upTo(40*time.Millisecond))
			continue
		}
		time.Sleep(lookEvery)
	}
	if h.told.Load() != 0 && c.chance(50) { // a holder that does not care
		c.write(h)
	}
}
