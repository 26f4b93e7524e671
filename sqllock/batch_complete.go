package sqllock

import "time"

// What the response to a batch means for each of its keys. The key table then
// decides the requests. Callers are woken at the end, all together.

// completeBatch acts on the response to the batch, and wakes the callers. It
// reports whether c lives. If the server did not have a lock that the batch
// released, other locks may be gone too, and c is lost.
func (c *connection) completeBatch() bool {
	t, b := c.slot.s.table, &c.batch
	if len(b.statement.NotHeld) > 0 {
		c.loseConnection(lossUnlock)
		return false
	}
	t.mu.Lock()
	t.wakes = &b.wakes
	alive := c.completeBatchLocked()
	t.wakes = nil
	t.mu.Unlock()
	b.wake()
	if alive {
		c.slot.s.options.observers.exchanged(c.stats.roundTrip, c.stats.keys)
	}
	return alive
}

// completeBatchLocked completes each key of the batch, releases first. A
// response that comes after the lease grants nothing.
func (c *connection) completeBatchLocked() bool {
	t, b := c.slot.s.table, &c.batch
	answered := now()
	if !c.renewLocked(answered) {
		return false
	}
	c.failed = 0
	c.answeredCrowdedLocked()
	for _, k := range b.releases {
		c.keyFreedLocked(k)
	}
	for _, key := range b.statement.Busy {
		if k := t.keys.of(key.Exclusive()); k != nil {
			sessionKeyOf(k).busy = true
		}
	}
	for _, k := range b.singles {
		b.settled++
		if own := sessionKeyOf(k); own.busy {
			own.busy = false
			c.keyDeniedLocked(k, ErrHeld)
		} else {
			c.keyGrantedLocked(k, answered)
		}
	}
	for i, g := range b.groups {
		b.settled++
		c.completeGroupLocked(g, b.statement.Won[i], answered)
	}
	for i, g := range b.sets {
		b.settled += len(g.keys)
		c.completeSetLocked(g, b.statement.Missing[i], answered)
	}
	if len(b.eachParts) > 0 {
		c.completeEachLocked(answered)
	}
	c.stats.roundTrip, c.stats.answered, c.stats.keys = answered-b.sent, len(b.wakes), b.keys()
	b.clear()
	c.quiet = c.quietLocked()
	c.slot.s.counters.exchanged(c.stats.roundTrip, c.stats.keys)
	if c.stats.keys > 0 {
		c.slot.s.used = answered
	}
	return true
}

// completeGroupLocked notes that the key at won was granted, or none if won is
// negative. The keys before it are held by other sessions. The database has not
// tested those after it, so they are requested again if they are wanted.
func (c *connection) completeGroupLocked(g group, won int, at time.Duration) {
	if won >= 0 {
		c.keyGrantedLocked(g.keys[won], at)
	}
	for i, k := range g.keys {
		switch {
		case won < 0 || i < won:
			c.keyDeniedLocked(k, ErrHeld)
		case i > won:
			c.keyUntestedLocked(k)
		}
	}
}

// completeSetLocked notes that all keys were granted, or none because another
// session holds the one at missing.
func (c *connection) completeSetLocked(g group, missing int, at time.Duration) {
	if missing < 0 {
		for _, k := range g.keys {
			c.keepLocked(k)
		}
		c.slot.s.table.grantedAllLocked(g.request, g.keys, at)
		return
	}
	c.keyDeniedLocked(g.keys[missing], ErrHeld)
	for i, k := range g.keys {
		if i != missing {
			c.keyUntestedLocked(k)
		}
	}
}
