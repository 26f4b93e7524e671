package sqllock

import "time"

// completeBatch gives the answers of the batch to its callers, and wakes them. It
// reports whether c lives.
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
	return alive
}

func (c *connection) completeBatchLocked() bool {
	t, b := c.slot.s.table, &c.batch
	answered := now()
	if !c.renewLocked(answered) {
		return false
	}
	c.failed = 0
	for _, k := range b.releases {
		c.keyFreedLocked(k)
	}
	for _, key := range b.statement.Busy {
		if k := t.keys.of(key.Exclusive()); k != nil {
			sessionKeyOf(k).busy = true
		}
	}
	for _, k := range b.tries {
		if own := sessionKeyOf(k); own.busy {
			own.busy = false
			c.keyDeniedLocked(k, ErrHeld)
		} else {
			c.keyGrantedLocked(k, answered)
		}
	}
	for i, g := range b.groups {
		c.completeGroupLocked(g, b.statement.Won[i], answered)
	}
	for i, g := range b.sets {
		c.completeSetLocked(g, b.statement.Missing[i], answered)
	}
	b.clear()
	c.stats.roundTrip, c.stats.answered = answered-b.sent, len(b.wakes)
	c.slot.s.counters.exchanged(answered - b.sent)
	return true
}

// completeGroupLocked takes in that the key at won was taken. Those before it are
// held by other sessions. Of those after it nothing is known.
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

// completeSetLocked takes in that all keys were taken, or none because another
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

// keepLocked notes that c holds k from now on.
func (c *connection) keepLocked(k *keyState) {
	c.held++
	own := sessionKeyOf(k)
	own.conn, own.full = c, nil
}

func (c *connection) keyGrantedLocked(k *keyState, at time.Duration) {
	c.keepLocked(k)
	c.slot.s.table.grantedLocked(k, at)
}

func (c *connection) keyDeniedLocked(k *keyState, err error) {
	c.slot.s.denyKeyLocked(k, err)
}

func (c *connection) keyUntestedLocked(k *keyState) {
	k.phase = idle
	c.slot.s.table.continueLocked(k)
}

func (c *connection) keyFreedLocked(k *keyState) {
	c.held--
	sessionKeyOf(k).conn = nil
	c.slot.s.table.freedLocked(k, nil)
}
