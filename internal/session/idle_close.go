package session

// How the connections of a Session close while it is idle (WithIdleClose).
//
// A connected slot falls asleep in closeIfIdle, and the next request wakes it.
// The other slots retire instead, and the first one waits for that.
//
// Invariant: while a slot is asleep, it is the only one, and the key table was
// empty when it fell asleep. So there is nothing that a connection could lose.

import "time"

// needed reports whether the Session needs a connection: for a lock, for a
// caller, or to end server processes that lost connections have left behind.
func (s *Session) needed() bool {
	return !s.Table.Figures().Idle || len(s.waits) > 0 || len(s.left.processes) > 0 || s.awaitsSecret()
}

// untilIdleClose returns how long until c may have been idle for long enough.
func (c *connection) untilIdleClose() time.Duration {
	s := c.s
	if s.options.IdleClose == 0 {
		return forever
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.used + s.options.IdleClose - Now()
	if s.needed() || left <= 0 { // it waits for the other slots, which tell it
		return s.options.IdleClose
	}
	return left
}

// endIfUnneeded ends c, and reports that, if the Session has been idle for long
// enough (WithIdleClose). So it does if the slot is not the first, and has had no
// lock for a number of heartbeats. beat says that another one is due.
func (c *connection) endIfUnneeded(beat bool) bool {
	const enough = 15
	sl, s := c.slot, c.s
	if !beat && (s.options.IdleClose == 0 || s.queued.Load() > 0) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := sl == s.slots[0]
	switch {
	case c.load() > 0:
		c.idle = 0
	case beat:
		c.idle++
	}
	idle := s.options.IdleClose > 0 && s.queued.Load() == 0 && !s.needed() && Now()-s.used >= s.options.IdleClose && len(errandOf[*tokens](c).requests) == 0
	switch {
	case c.dead.Load():
		return false
	case first && idle && len(s.slots) == 1:
		sl.conn, sl.asleep = nil, true
		s.room = room{tight: s.room.tight} // it is looked at again before the next lock
	case !first && (idle || c.idle >= enough):
		s.remove(sl)
	default:
		return false
	}
	c.unneeded = true
	c.markDead()
	return true
}

// idleClosed reports whether there is no connection because none was needed, and
// opening one has not failed since.
func (s *Session) idleClosed() bool {
	first := s.slots[0]
	return len(s.slots) == 1 && first.conn == nil && first.away == nil && !first.wasLost && !s.closed
}

// awaitCaller returns when a caller needs a connection, or the Session is closed.
// Callers then wait for it as they do after a loss.
func (sl *slot) awaitCaller() {
	s := sl.s
	for {
		s.mu.Lock()
		if sl.asleep && s.needed() {
			sl.asleep = false
			sl.failLater()
		}
		asleep := sl.asleep
		s.mu.Unlock()
		if !asleep {
			return
		}
		select {
		case <-sl.wake:
		case <-s.ctx.Done():
			return
		}
	}
}
