package session

import (
	"slices"
	"sync/atomic"
	"time"
)

// A slot is a place for one connection of a Session. The connection may be lost
// and replaced. s.mu protects it.
//
// The first slot is in one of these states:
//
//	connected    conn is set
//	asleep       no caller needs a connection, and none is being opened
//	connecting   neither: keepConnected opens a connection, with growing pauses
type slot struct {
	s        *Session
	wake     chan struct{} // holds a token when there may be something to send
	inDriver *atomic.Int32 // attempts in progress in the driver, those that nobody waits for included: of the first slot, or of all others

	conn    *connection   // nil: none
	away    error         // why requests have no chance here: no response, or no connection
	failAt  time.Duration // when that is so, if sl has no connection then
	wasLost bool          // there was a connection and it was lost, or an attempt at one failed
	asleep  bool
	retired bool // not needed any more
}

func newSlot(s *Session) *slot {
	return &slot{s: s, wake: make(chan struct{}, 1), inDriver: new(atomic.Int32)}
}

// growPause is how long a Session goes without another connection after an
// attempt at one has failed.
const growPause = 10 * time.Second

// chosen returns the connection that requests go to now: the first with room, so
// that few locks stay on few connections. If none has room, it is the one with
// the fewest locks. A doubtful connection gets no request while there is another.
func (s *Session) chosen() *connection {
	var best *connection
	for _, sl := range s.slots {
		c := sl.conn
		switch {
		case c == nil:
		case best == nil, best.doubtful && !c.doubtful:
			best = c
		case best.doubtful != c.doubtful:
		case s.isFull(best) && c.load() < best.load():
			best = c
		}
	}
	return best
}

// passOn wakes the connection that requests go to now, unless that is c, if some
// are queued. When they came another one was chosen, and this one has dropped
// its token. Call it when the choice may have changed, or a key that requests
// wait for. s.mu is held.
func (s *Session) passOn(c *connection) {
	if len(s.slots) == 1 || !s.Table.Figures().Queued {
		return
	}
	if to := s.chosen(); to != nil && to != c {
		signal(to.slot.wake)
	}
}

// isFull reports whether c has as many locks as a connection should.
func (s *Session) isFull(c *connection) bool {
	return s.options.perConn > 0 && c.load() >= s.options.perConn
}

// load returns how many locks are on c, or may soon be.
func (c *connection) load() int {
	return c.owner.Held() + c.brings
}

// mayGrow reports whether to open another connection. It respects WithMaxConns.
// It leaves one connection of the pool for the proof that each new connection
// needs.
func (s *Session) mayGrow() bool {
	limit := s.options.maxConns()
	if pool := s.db.Stats().MaxOpenConnections; pool > 0 {
		limit = min(limit, pool-1)
	}
	connecting := slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.conn == nil })
	return len(s.slots) < limit && !connecting && (s.growAfter == 0 || Now() >= s.growAfter)
}

// grow adds a slot, which takes requests once it has connected.
func (s *Session) grow() {
	sl := newSlot(s)
	sl.away, sl.inDriver = ErrUnavailable, &s.inDriver
	s.setSlots(append(slices.Clone(s.slots), sl))
	s.tasks.Add(1)
	go sl.keepConnected(nil)
}

// remove takes sl, which has no locks, out of use.
func (s *Session) remove(sl *slot) {
	sl.retired = true
	s.setSlots(slices.DeleteFunc(slices.Clone(s.slots), func(other *slot) bool { return other == sl }))
	s.passOn(nil)
}

// setSlots makes slots those of s.
func (s *Session) setSlots(slots []*slot) {
	s.slots = slots
	wakes := make([]chan struct{}, len(slots))
	for i, sl := range slots {
		wakes[i] = sl.wake
	}
	s.wakes.Store(&wakes)
}

// setAway notes why requests have no chance on sl, or that they have (nil). The
// table fails requests only while that holds for all slots.
func (sl *slot) setAway(err error) {
	sl.away = err
	for _, other := range sl.s.slots {
		if other.away == nil {
			err = nil
		}
	}
	sl.s.Table.SetAway(err)
}

// lost notes that the connection of sl is lost.
func (sl *slot) lost() {
	sl.conn, sl.wasLost = nil, true
	sl.failLater()
}

// failLater starts the time after which callers fail at once, if sl is not
// connected then. It begins anew with each loss.
func (sl *slot) failLater() {
	s := sl.s
	at := Now() + s.options.timeout
	sl.failAt = at
	time.AfterFunc(s.options.timeout, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if sl.failAt == at && sl.conn == nil && sl.away == nil && !sl.asleep && !s.closed {
			sl.setAway(errNoConnection)
		}
	})
}
