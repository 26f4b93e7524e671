package sqllock

import (
	"slices"
	"sync/atomic"
	"time"
)

// The places for connections, and which of them a request goes to.

// A slot is a place for one connection of a Session, with the queue of what is
// to be sent on it. The connection may be lost and replaced. What has not been
// sent by then stays in the queue.
//
// Invariant: while oldest is not 0 and there is a connection, its goroutine is
// at work or has a token in wake. Of the calls that queue something in one turn
// only the first needs to leave a token. A token may also be there for other
// work: a release for which no caller waits, a token to draw, a new connection.
type slot struct {
	s        *Session
	wake     chan struct{} // holds a token when there may be something to send
	queued   atomic.Int64  // the length of the queue, a moment ago
	inDriver *atomic.Int32 // attempts in progress in the driver, those that nobody waits for included: of the first slot, or of all others

	// protected by s.table.mu
	conn         *connection   // nil: none
	away         error         // why requests have no chance: no answer for answerTimeout, or no connection
	releases     []*keyState   // to give back; some may have been taken over since
	singles      []*keyState   // keys to request one by one, for waiters too
	spareSingles []*keyState   // memory for singles
	groups       []*request    // to take some of
	oldest       time.Duration // when the first of the queue came; 0: no caller waits for what is queued
	down         *time.Timer   // until calls fail, while there is no connection
	wasLost      bool          // there was a connection and it was lost, or an attempt at one failed
	asleep       bool          // there is no connection until a caller needs one: see WithIdleClose
	retired      bool          // not needed any more
}

// newSlot returns a slot without a connection.
func newSlot(s *Session) *slot {
	return &slot{s: s, wake: make(chan struct{}, 1), inDriver: new(atomic.Int32)}
}

// growPause is how long a Session goes without another connection after an
// attempt at one has failed.
const growPause = 10 * time.Second

// chooseSlotLocked returns the slot for the next lock. If all slots are full,
// it opens another connection for later locks.
func (s *Session) chooseSlotLocked() *slot {
	sl := s.bestSlotLocked()
	if sl.away == nil && s.options.perConn > 0 && sl.loadLocked() >= s.options.perConn && s.mayGrowLocked() {
		s.growLocked()
	}
	return sl
}

// bestSlotLocked returns the first slot with room, so that few locks stay on
// few connections. If none has room, it returns the slot with the fewest locks.
// Connected slots come before slots that connect, and these before slots that
// are away.
func (s *Session) bestSlotLocked() *slot {
	best := s.slots[0]
	for _, sl := range s.slots[1:] {
		if sl.standing() != best.standing() {
			if sl.standing() > best.standing() {
				best = sl
			}
		} else if best.loadLocked() >= s.options.perConn && sl.loadLocked() < best.loadLocked() {
			best = sl
		}
	}
	return best
}

// standing ranks a slot by how soon it can send a request.
func (sl *slot) standing() int {
	switch {
	case sl.away != nil:
		return 0
	case sl.conn == nil:
		return 1
	}
	return 2
}

// loadLocked returns how many locks are on sl, or may soon be.
func (sl *slot) loadLocked() int {
	n := len(sl.singles) + len(sl.groups)
	if sl.conn != nil {
		n += sl.conn.held + sl.conn.batch.mayBring()
	}
	return n
}

// mayGrowLocked reports whether to open another connection. It respects
// WithMaxConns. It leaves one connection of the pool for the proof that each
// new connection needs.
func (s *Session) mayGrowLocked() bool {
	limit := s.options.maxConns
	if pool := s.db.Stats().MaxOpenConnections; pool > 0 {
		limit = min(limit, pool-1)
	}
	connecting := slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.conn == nil })
	return len(s.slots) < limit && !connecting && (s.growAfter == 0 || now() >= s.growAfter)
}

// removeLocked takes sl, which has no locks and an empty queue, out of use.
func (s *Session) removeLocked(sl *slot) {
	sl.retired = true
	s.slots = slices.DeleteFunc(s.slots, func(other *slot) bool { return other == sl })
	s.slots[0].signal() // it may be the last one, and idle
}

// notifyLocked tells the goroutine of the connection that something was queued.
func (sl *slot) notifyLocked() {
	sl.storeLengthLocked()
	if sl.oldest == 0 {
		sl.oldest = now()
		sl.wakeUpLocked()
		sl.signal()
	}
}

// waitSinceLocked notes that a caller of what is queued, or is about to be, has
// waited since then, in a statement that did not do its work.
func (sl *slot) waitSinceLocked(then time.Duration) {
	if sl.oldest == 0 || then < sl.oldest {
		sl.oldest = then
	}
}

// wakeUpLocked has a slot that is asleep open a connection. Callers wait for it
// as they do after a loss.
func (sl *slot) wakeUpLocked() {
	if sl.asleep {
		sl.asleep = false
		sl.failLaterLocked()
	}
}

// signal leaves a token for the goroutine of the connection, if there is none.
func (sl *slot) signal() {
	select {
	case sl.wake <- struct{}{}:
	default:
	}
}

// storeLengthLocked stores the length of the queue for coalesce, which reads it
// often and without the mutex.
func (sl *slot) storeLengthLocked() {
	sl.queued.Store(int64(len(sl.releases) + len(sl.singles) + len(sl.groups)))
}

// lostLocked notes that the connection is lost.
func (sl *slot) lostLocked() {
	sl.conn, sl.wasLost = nil, true
	sl.failLaterLocked()
}

// failLaterLocked starts the time after which callers fail, unless sl is
// connected again by then. A caller waits for at most answerTimeout in all.
func (sl *slot) failLaterLocked() {
	timeout := sl.s.options.timeout
	wait := timeout
	if sl.oldest != 0 {
		wait = max(sl.oldest+timeout-now(), 0)
	}
	if sl.down != nil {
		sl.down.Reset(wait)
		return
	}
	sl.down = time.AfterFunc(wait, func() {
		sl.s.table.mu.Lock()
		defer sl.s.table.mu.Unlock()
		if sl.conn == nil && sl.away == nil && !sl.asleep && !sl.s.table.closed {
			sl.failQueueLocked(errNoConnection)
		}
	})
}

// failQueueLocked fails the calls that wait for a response, and those that come
// from now on, with err. Releases stay queued, because the locks must end.
func (sl *slot) failQueueLocked(err error) {
	t := sl.s.table
	sl.away = err
	singles, groups := sl.singles, sl.groups
	sl.singles, sl.groups, sl.oldest = nil, nil, 0
	sl.storeLengthLocked()
	for _, k := range singles {
		if k.phase == queued && sessionKeyOf(k).slot == sl {
			sl.s.denyKeyLocked(k, err)
		}
	}
	for _, r := range groups {
		r.enqueued = false
		for _, k := range r.states {
			if k != nil && k.phase == idle {
				sl.s.denyKeyLocked(k, err)
			}
		}
		if r.each != nil && r.each.complete() { // it has reserved all keys meanwhile, and needs no statement
			t.sendEachLocked(r)
		}
	}
	for _, k := range sl.releases {
		if k.phase == releasing && sessionKeyOf(k).conn.slot == sl {
			t.replyLocked(k, err)
			t.denyTriesLocked(k, err)
		}
	}
	if sl.conn != nil {
		sl.conn.batch.failLocked(t, err)
	}
}
