package worker

import (
	"cmp"
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Chances in a hundred.
const (
	listeners = 33 // holders that rely on the lock's context alone
	lookersOn = 60 // those that look on after a loss
)

// looksOn bounds how long a holder looks on after a loss. By then its Session
// has another connection.
const looksOn = 1500 * time.Millisecond

// noteEvery is how often a holder writes down until when its lock was valid. A
// process that is killed leaves no later trace of a lock.
const noteEvery = history.Moment(100 * time.Millisecond)

// hold holds lock for a while, gives it back, and writes down what it saw.
func (c *caller) hold(draining context.Context, lock *sqllock.Lock, number int64) {
	w := c.w.observe(lock, number, c.chance(listeners))
	if w.Look() {
		c.w.noteHold(w.Hold)
		if w.Hold.Listens {
			c.listen(draining, w)
		} else {
			c.stay(draining, w)
		}
	}
	if w.Told() && c.chance(lookersOn) {
		w.LookOn(draining, c.upTo(looksOn))
	}
	c.w.noteHold(w.GiveBack())
}

// observe observes a lock of this process, and counts its loss.
func (w *work) observe(lock *sqllock.Lock, number int64, listens bool) *ObservedLock {
	return Observe(lock, w.config.Process, number, listens, func() { w.counts.lost.Add(1) })
}

func (w *work) noteHold(h history.Hold) { w.note(history.Event{Hold: &h}) }

// length returns how long a lock is held if it is not lost. It is mostly a
// moment, and sometimes longer than a lease, so that faults meet holders.
func (c *caller) length() time.Duration {
	switch n := c.rng.IntN(100); {
	case n < 1:
		return c.upTo(2 * c.w.config.Lease)
	case n < 4:
		return c.upTo(time.Second)
	default:
		return c.upTo(30 * time.Millisecond)
	}
}

// listen holds a lock and relies on its context alone.
func (c *caller) listen(draining context.Context, w *ObservedLock) {
	ctx, cancel := context.WithTimeout(draining, c.length())
	defer cancel()
	w.Listen(ctx)
}

// stay holds a lock and looks at it, also at the very end. Some holders write
// now and then.
func (c *caller) stay(draining context.Context, w *ObservedLock) {
	writes, writeAt := c.chance(20), w.Hold.From
	noteAt, end := w.Hold.From+noteEvery, w.Hold.From+history.Moment(c.length())
	for now := w.Hold.From; w.Look() && now < end && draining.Err() == nil; now = history.Now() {
		if now >= noteAt {
			c.w.noteHold(w.Hold)
			noteAt = now + noteEvery
		}
		if writes && now >= writeAt {
			c.write(w)
			writeAt = history.Now() + history.Moment(c.upTo(40*time.Millisecond))
			continue
		}
		time.Sleep(cmp.Or(c.w.config.Look, LookEvery))
	}
	if w.Told() && c.chance(50) { // a holder that does not care
		c.write(w)
	}
}
