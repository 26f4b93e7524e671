package sqllock

import "time"

// WithIdleClose makes a Session close its connection after it has had no lock
// for d, so that a serverless database can suspend. The next call opens it
// again. d is at least a second.
//
// A Session has no lock while none is held, requested or waited for. A campaign
// of package election always holds or waits, so it keeps the connection open. A
// heartbeat does not.
//
// The close costs no caller anything but time. It is no loss: no lock ends, and
// Stats counts none. A call that opens the connection waits as it would after a
// loss: TryLock returns ErrUnavailable after 0.9 s, and opening goes on. So use
// Lock, or a limiter that waits, for a database that needs longer to start.
// Each connection proves again that locks exclude.
//
// Use a *sql.DB of its own with SetConnMaxIdleTime, since the proof leaves a
// connection in the pool. [Stats].IdleClosed tells a closed connection from a
// database that is away.
//
// WithIdleClose panics if d is not positive. Open returns an error if d is less
// than a second.
func WithIdleClose(d time.Duration) Option {
	if d <= 0 {
		panic("sqllock: WithIdleClose needs a positive duration")
	}
	return func(o *options) { o.idleClose = d }
}

// How the connections of a Session close while it is idle. The first slot is in
// one of these states:
//
//	connected    conn is set
//	idle closed  asleep: no caller needs a connection, and none is being opened
//	connecting   neither: keepConnected opens a connection, with growing pauses
//
// A connected slot falls asleep in closeIfIdle, and the first request that is
// queued wakes it. Both happen under table.mu, so a request either comes before
// and keeps the connection, or comes after and opens another. The other slots
// retire instead, and the first one waits for that.
//
// Invariant: while a slot is asleep, it is the only one, the key table is empty
// and nothing is queued. So there is nothing that a connection could lose, and
// no token of a lock to draw. The secret checks end with the connection, and
// the next one makes them again.

// neededLocked reports whether the Session needs a connection: for a lock, for
// a caller, or to end server processes that lost connections have left behind.
func (s *Session) neededLocked() bool {
	return s.table.keys.len() > 0 || s.table.waiting > 0 || len(s.leftProcesses) > 0
}

// untilIdleClose returns how long until c may have been idle for long enough.
func (c *connection) untilIdleClose() time.Duration {
	s := c.slot.s
	if s.options.idleClose == 0 {
		return forever
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.neededLocked() {
		return s.options.idleClose
	}
	left := s.used + s.options.idleClose - now()
	if left <= 0 { // it waits for the other slots, which tell it
		return s.options.idleClose
	}
	return left
}

// closeIfIdle ends c if the Session has been idle for long enough, and reports
// that.
func (c *connection) closeIfIdle() bool {
	sl, s := c.slot, c.slot.s
	if s.options.idleClose == 0 || sl.queued.Load() > 0 {
		return false
	}
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	first := sl == s.slots[0]
	switch {
	case c.dead.Load(), s.neededLocked(), now()-s.used < s.options.idleClose:
		return false
	case sl.oldest != 0, len(c.tokenRequests) > 0, first && len(s.slots) > 1:
		return false
	case first:
		sl.conn, sl.asleep = nil, true
		s.room = room{tight: s.room.tight} // it is looked at again before the next lock
	default:
		s.removeLocked(sl)
	}
	c.unneeded = true
	c.markDeadLocked()
	return true
}

// idleClosedLocked reports whether there is no connection because none was
// needed, and opening one has not failed since.
func (s *Session) idleClosedLocked() bool {
	first := s.slots[0]
	return len(s.slots) == 1 && first.conn == nil && first.away == nil && !first.wasLost && !s.table.closed
}

// awaitCaller returns when sl is not asleep any more, or the Session is closed.
func (sl *slot) awaitCaller() {
	for sl.sleeps() {
		select {
		case <-sl.wake:
		case <-sl.s.ctx.Done():
			return
		}
	}
}

func (sl *slot) sleeps() bool {
	sl.s.table.mu.Lock()
	defer sl.s.table.mu.Unlock()
	return sl.asleep
}
