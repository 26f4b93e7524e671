package sqllock

import (
	"time"
)

// complete gives everybody the answers of the batch. It reports whether l lives.
func (c *connection) complete() bool {
	t, b := c.slot.s.table, &c.batch
	if len(b.statement.NotHeld) > 0 {
		c.loseConnection(lossUnlock)
		return false
	}
	t.mu.Lock()
	t.wakes = &b.wakes
	alive := c.completeLocked()
	t.wakes = nil
	t.mu.Unlock()
	b.wake()
	return alive
}

// wake wakes those who have their answers.
func (b *batch) wake() {
	for _, done := range b.wakes {
		done <- struct{}{}
	}
	clear(b.wakes)
	b.wakes = b.wakes[:0]
}

func (c *connection) completeLocked() bool {
	sl, t, b := c.slot, c.slot.s.table, &c.batch
	answered := now()
	if !c.answeredLocked(answered) {
		return false
	}
	c.failed = 0
	for _, k := range b.releases {
		c.freedLocked(k)
	}
	for _, key := range b.statement.Busy {
		if k := t.keys.of(key.Exclusive()); k != nil {
			sessionKeyOf(k).busy = true
		}
	}
	for _, k := range b.tries {
		if own := sessionKeyOf(k); own.busy {
			own.busy = false
			c.refusedLocked(k, ErrHeld)
		} else {
			c.grantedLocked(k, answered)
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
	sl.s.counters.exchanged(answered - b.sent)
	return true
}

// completeGroupLocked: the key at won was taken, those before it are held elsewhere, and
// of those after it nothing is known.
func (c *connection) completeGroupLocked(g group, won int, at time.Duration) {
	if won >= 0 {
		c.grantedLocked(g.keys[won], at)
	}
	for i, k := range g.keys {
		switch {
		case won < 0 || i < won:
			c.refusedLocked(k, ErrHeld)
		case i > won:
			c.untestedLocked(k)
		}
	}
}

// completeSetLocked: all keys were taken, or none, since that at missing is held elsewhere.
func (c *connection) completeSetLocked(g group, missing int, at time.Duration) {
	if missing < 0 {
		c.held += len(g.keys)
		for _, k := range g.keys {
			own := sessionKeyOf(k)
			own.conn, own.full = c, nil
		}
		c.slot.s.table.grantedAllLocked(g.request, g.keys, at)
		return
	}
	c.refusedLocked(g.keys[missing], ErrHeld)
	for i, k := range g.keys {
		if i != missing {
			c.untestedLocked(k)
		}
	}
}

func (c *connection) untestedLocked(k *keyState) {
	own := sessionKeyOf(k)
	own.use.countLocked(-1)
	own.use = nil
	k.phase = idle
	c.slot.s.table.continueLocked(k)
}

func (c *connection) grantedLocked(k *keyState, at time.Duration) {
	c.held++
	own := sessionKeyOf(k)
	own.conn, own.full = c, nil
	c.slot.s.table.grantedLocked(k, at)
}

func (c *connection) refusedLocked(k *keyState, err error) {
	sessionKeyOf(k).use.countLocked(-1)
	c.slot.s.denyKeyLocked(k, err)
}

func (c *connection) freedLocked(k *keyState) {
	c.held--
	own := sessionKeyOf(k)
	own.use.countLocked(-1)
	own.conn, own.use = nil, nil
	c.slot.s.table.freedLocked(k, nil)
}

// answeredLocked notes that the statement under way was answered at this time,
// and reports whether that is in time. table.mu is held.
func (c *connection) answeredLocked(at time.Duration) bool {
	c.batch.underWay = false
	if c.dead.Load() {
		return false
	}
	c.served = true
	// Too late for what was held: the timer is about to say so. (After a suspend, what
	// comes late by the other clock moves that deadline no further than it may.)
	if c.late() {
		c.timer.Reset(0)
		return false
	}
	trust := c.slot.s.options.validFor()
	c.deadline.Store(int64(c.batch.sent + trust))
	c.deadlineBoot.Store(int64(c.batch.sentBoot + trust))
	if c.stalled {
		c.stalled, c.slot.away = false, nil
	}
	c.armLocked()
	return true
}

// failLocked tells the batch's callers that there is no answer yet. What it brings
// after all is given back.
func (b *batch) failLocked(t *keyTable, err error) {
	if !b.underWay {
		return
	}
	for _, k := range b.releases {
		t.replyLocked(k, err)
		t.denyTriesLocked(k, err)
	}
	for _, k := range b.tries {
		t.denyTriesLocked(k, err)
	}
	for _, groups := range [][]group{b.groups, b.sets} {
		for _, g := range groups {
			for _, k := range g.keys {
				t.denyTriesLocked(k, err)
			}
		}
	}
}
