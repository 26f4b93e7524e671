package session

// How the connections of a Session close while it is idle (WithIdleClose).
//
// A connected slot falls asleep in endIfUnneeded, and the next request wakes it.
// The other slots retire instead, and the first one waits for that.
//
// Invariant: while a slot is asleep, it is the only one, and the key table was
// empty when it fell asleep. So there is nothing that a connection could lose.

// needed reports whether the Session needs a connection: for a lock, for a
// caller, or to end server processes that lost connections have left behind.
func (s *Session) needed() bool {
	return !s.Table.Figures().Idle || len(s.waits) > 0 || len(s.left.processes) > 0 || s.awaitsSecret()
}

// endIfUnneeded ends c, and reports that, if the Session has been idle for long
// enough (WithIdleClose). So it does if the slot is not the first, and has had no
// lock for a number of heartbeats. It is called when another one is due.
func (c *connection) endIfUnneeded() bool {
	const enough = 15
	sl, s := c.slot, c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.idle++; c.load() > 0 {
		c.idle = 0
	}
	first := sl == s.slots[0]
	idle := s.options.IdleClose > 0 && !s.needed() && Now()-s.used >= s.options.IdleClose
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
