package sqllock

import (
	"time"
)

// The goroutine of a connection: it sends what is queued, and a heartbeat while
// nothing is.

// run sends statements until c is dead. It alone uses the session, and ends it.
//
// It waits for the first of these: something is queued, the socket has
// something to read, a heartbeat is due, or c is dead. After a short silence it
// starts to watch the socket. The timer is left alone while there is traffic,
// since to reset it for every statement is dear.
func (c *connection) run() {
	defer close(c.stopped)
	defer c.watch.stop()
	defer c.session.Destroy()
	every, quiet := c.slot.s.options.heartbeat, c.quiet
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	soon := true  // the timer fires within quiet
	last := now() // when a statement was last answered, about
	for {
		due, beat := false, false
		select {
		case <-c.slot.wake:
		case <-c.watch.readable():
			beat = true // it is the end of the connection, unless a statement says otherwise
			c.rang()
		case <-timer.C:
			silent := now() - last
			if silent < quiet {
				timer.Reset(quiet - silent)
				continue
			}
			due = silent >= every
			beat = due
			c.watch.arm()
			timer.Reset(max(min(every-silent, c.untilIdleClose()), 0))
			soon = false
		case <-c.gone:
		}
		if c.dead.Load() {
			c.slot.signal() // the token may have been for the next connection
			return
		}
		if c.closeIfIdle() || due && c.retireIfSpare() {
			return
		}
		for c.round = (round{due: due, beat: beat}); c.exchange(); {
			last = now()
			if !soon || c.quiet < quiet { // else it is left alone until it fires
				timer.Reset(c.quiet)
				soon = true
			}
			quiet = c.quiet
		}
	}
}

// retireIfSpare ends c if its slot is not needed any more, and reports that.
// Such a slot is not the first, and has had no lock for a number of heartbeats.
func (c *connection) retireIfSpare() bool {
	const enough = 15
	s := c.slot.s
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if c.slot == s.slots[0] || c.slot.loadLocked() > 0 {
		c.idle = 0
		return false
	}
	c.idle++
	if c.idle < enough {
		return false
	}
	s.removeLocked(c.slot)
	c.markDeadLocked()
	return true
}
