package sqllock

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// How a Session learns at once that another process has released a key.
//
// The first connection listens to the bells of the keys that wait here. The
// release of such a key, in another session, makes the socket readable. So does
// the end of the connection. In both cases the next statement is sent at once,
// and carries the keys that wait. It fails if the connection has ended.
//
// A bell may be missed: the response to a statement may carry it unseen, and
// older processes ring none. So the waiters of a key still poll, but rarely.
//
// A connection that hears bells to no purpose looks at its socket less and less
// often. So other clients cannot make it send more than a statement each
// ringMax.

const (
	// A key wants a bell once it has been denied for bellAfter, times the number
	// of such keys, or for bellAfterMax. Up to then polling is cheaper: the more
	// keys wait, the more statements each of them shares.
	bellAfter    = 16 * time.Millisecond
	bellAfterMax = 500 * time.Millisecond

	// ringMin is how long a connection with waiters is silent before its socket
	// is watched, and so the least time between two statements for bells. It
	// doubles up to ringMax with each ringPatience bells that bring no key.
	ringMin      = 2 * time.Millisecond
	ringMax      = 32 * time.Millisecond
	ringPatience = 4

	// maxBells bounds the bells of a connection, since each takes a place in the
	// server's lock table. Other keys are polled.
	maxBells = 256

	// ringLinger is how long a bell is kept after it was last wanted, at least. A
	// key that is waited for again and again keeps its bell.
	ringLinger = 250 * time.Millisecond

	// ringPause is how long a connection does not listen after the server has
	// refused to let it.
	ringPause = 10 * time.Second

	// ringMisses is how many attempts in a row at a mark that is taken follow each
	// other at once. A release has a mark for a moment only. Another client may
	// keep it, so further attempts are ringLinger apart.
	ringMisses = 4
)

// listenLocked notes that k was denied to its waiters. After a long wait it adds
// the bell of k. It reports whether the bell is heard.
func (s *Session) listenLocked(k *keyState) (heard bool) {
	b, at := s.bellsLocked(), now()
	if b == nil || b.off(at) || s.room.tight || at-k.busySince < min(time.Duration(s.table.busy)*bellAfter, bellAfterMax) {
		return false
	}
	number := dialect.BellOf(k.key)
	one := b.wanted[number]
	if one == nil {
		if len(b.wanted) >= maxBells {
			return false
		}
		one = new(bell)
		b.wanted[number], b.changed = one, true
		if len(s.slots) > 1 { // the statements may be those of another connection
			s.slots[0].signal()
		}
	}
	one.last = at
	return one.heard
}

// rang acts on something that has arrived on the idle socket. It is a bell, or
// the end of the connection.
func (c *connection) rang() {
	if c.bells == nil {
		return
	}
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.bells.useless++
	t.pollAllLocked()
}

// quietLocked returns how long c is silent before its socket is watched.
func (c *connection) quietLocked() time.Duration {
	quiet := min(watchAfter, c.slot.s.options.heartbeat)
	if b := c.bells; b != nil && len(b.wanted) > 0 && len(c.slot.s.table.pausing) > 0 {
		return min(quiet, ringMin<<min(b.useless/ringPatience, 10), ringMax)
	}
	return quiet
}

// prepareBellsLocked takes the bells to listen to, if they have changed.
func (c *connection) prepareBellsLocked() bool {
	b := c.bells
	if b == nil {
		return false
	}
	at := now()
	if at-b.swept >= ringLinger {
		b.swept = at
		b.forgetLocked(at - ringLinger)
	}
	if !b.changed || b.off(at) || b.misses >= ringMisses && at-b.tried < ringLinger {
		return false
	}
	b.tried = at
	b.changed = false
	c.round.bells = c.round.bells[:0]
	for number := range b.wanted {
		c.round.bells = append(c.round.bells, number)
	}
	return true
}

// completeBells notes which bells are heard. Their keys may have been released
// just before that, so all keys that wait are requested.
func (c *connection) completeBells(err error) {
	t, b := c.slot.s.table, c.bells
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return
	}
	if err != nil { // what the server knows is dropped after the pause
		clear(b.wanted)
		b.changed, b.retryAt = true, now()+ringPause
		b.told = max(b.told, len(c.round.bells))
		return
	}
	b.told = len(c.round.bells)
	if !c.round.complete {
		b.changed = true
		b.misses++
		return
	}
	b.misses = 0
	for _, number := range c.round.bells {
		if one := b.wanted[number]; one != nil {
			one.heard = true
		}
	}
	t.pollAllLocked()
}
