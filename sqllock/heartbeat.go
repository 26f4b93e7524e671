package sqllock

import (
	"time"
)

// watchAfter is how long a connection is silent before its socket is watched:
// while there is traffic, that notices a closed connection by itself.
const watchAfter = 20 * time.Millisecond

// run sends what is queued, and heartbeats while nothing is, until l is dead.
// It alone uses the session, and ends it.
func (c *connection) run() {
	defer close(c.stopped)
	defer c.watch.stop()
	defer c.session.Destroy()
	every := c.slot.s.options.heartbeat
	quiet := min(watchAfter, every)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	soon := true // the timer fires within quiet
	c.tend()
	last := now() // when a statement was last answered, about
	for {
		due := false
		select {
		case <-c.slot.wake:
		case <-c.watch.readable():
			due = true
		case <-timer.C:
			silent := now() - last
			if silent < quiet {
				timer.Reset(quiet - silent)
				continue
			}
			due = silent >= every
			c.watch.arm()
			timer.Reset(max(every-silent, 0))
			soon = false
		case <-c.gone:
		}
		if c.dead.Load() {
			c.slot.signal() // the token may have been for the next connection
			return
		}
		if due && c.retireIfSpare() {
			return
		}
		for c.exchange(due) {
			due = false
			last = now()
			if !soon { // else it is left alone until it fires
				timer.Reset(quiet)
				soon = true
			}
		}
	}
}

// exchange sends what is queued in one statement, or nothing but a heartbeat if
// due. It reports whether it sent anything and l lives.
func (c *connection) exchange(due bool) bool {
	sent := c.drawTokens()
	if c.needsLook || due || c.batch.sent-c.tended >= c.slot.s.options.heartbeat {
		tended := c.tend()
		if tended && due { // which was the heartbeat
			c.slot.s.countBeat()
		}
		sent = sent || tended
	}
	sent = c.checkSecrets() || sent
	sent = c.register(due) || sent
	if !c.prepare(c.coalesce(), due && !sent) {
		return sent && !c.dead.Load()
	}
	c.watch.expect()
	err := c.session.Exchange(&c.batch.statement)
	c.watch.answered()
	switch {
	case err == nil:
		return c.complete()
	case survived(err):
		return c.reconcile(fromDialect(err))
	}
	c.loseConnection(err.Error())
	return false
}

// tend does what is due once a heartbeat beside the statements of locks, and
// before the first of them. It reports whether it sent a heartbeat with that.
func (c *connection) tend() bool {
	due := c.tended == 0 || now()-c.tended >= c.slot.s.options.heartbeat
	sent := false
	if due {
		c.tended = now()
		sent = c.endLeft()
	}
	return c.look(due) || sent
}

// retireIfSpare reports whether l's slot is not needed any more, and ends it then:
// it is not the first and has been without locks for a while.
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
	c.retireLocked()
	return true
}
