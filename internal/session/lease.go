package session

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A lease is what the locks of a connection are as good as.
//
// Invariant: while now is before deadline, and boot time before deadlineBoot,
// the server has not freed a lock of the connection because the connection was
// silent. The server counts the lease from the end of a statement at the
// earliest, which is after the statement was sent. So the deadline is the time
// at which the last answered statement was sent, plus the lease, less what
// clocks may differ by (Options.validFor). It takes both clocks: the monotonic
// one stands still while the system is suspended.
//
// A connection is live, doubtful or lost. It is doubtful while a statement has
// had no response for 0.9 s: its callers were told, and its locks stay.
type lease struct {
	deadline     atomic.Int64 // by Now
	deadlineBoot atomic.Int64 // by Options.bootTime

	// protected by Session.mu
	doubtful bool
	timer    *time.Timer   // for the deadline, or for a statement without a response
	alarm    time.Duration // when the timer fires at the latest; never after what is due next

	// of the statement under way
	underWay bool
	sent     time.Duration
	sentBoot time.Duration // the same by the clock that goes on while the system is suspended
}

// beginLease begins the lease of c, which has just answered.
//
// To open it took several statements. The deadline should count from when the
// last of them was sent, and counts from its response. Nothing is held yet, so
// that does no harm until the first statement corrects it.
func (c *connection) beginLease() {
	validFor := c.s.options.validFor()
	c.alarm = Now() + validFor
	c.deadline.Store(int64(c.alarm))
	c.deadlineBoot.Store(int64(c.s.options.bootTime() + validFor))
	c.timer = time.AfterFunc(validFor, c.check)
}

// Expired reports whether the locks of c are no longer certainly held. It
// implements keytable.Lifeline, and so do Over and LoseLease.
func (c *connection) Expired() bool {
	return c.Over() || int64(c.s.options.bootTime()) >= c.deadlineBoot.Load()
}

// Over is Expired by the monotonic clock alone, which is much cheaper to read.
// That is enough where no effect of a caller depends on the result.
func (c *connection) Over() bool { return c.dead.Load() || int64(Now()) >= c.deadline.Load() }

// LoseLease ends c and its locks, because they have expired.
func (c *connection) LoseLease() { c.lose(lossLease) }

// remaining returns how long the locks of c are certainly held without another
// response, or 0 if they are not.
func (c *connection) remaining() time.Duration {
	boot := time.Duration(c.deadlineBoot.Load()) - c.s.options.bootTime()
	return max(min(time.Duration(c.deadline.Load())-Now(), boot), 0)
}

// sending notes that a statement is about to be sent. s.mu is held.
func (c *connection) sending() {
	c.underWay, c.sent, c.sentBoot = true, Now(), c.s.options.bootTime()
	c.arm()
}

// renew notes that the statement under way was answered. It returns how long that
// took, and whether it was in time. s.mu is held.
func (c *connection) renew() (took time.Duration, ok bool) {
	c.underWay = false
	if c.dead.Load() {
		return 0, false
	}
	c.served = true
	at := Now()
	took = at - c.sent
	// Too late for what was held: the timer is about to say so. After a suspend, a
	// response that is late by the boot clock moves the other deadline no further
	// than it may.
	if int64(at) >= c.deadline.Load() {
		c.timer.Reset(0)
		return took, false
	}
	validFor := c.s.options.validFor()
	c.deadline.Store(int64(c.sent + validFor))
	c.deadlineBoot.Store(int64(c.sentBoot + validFor))
	if c.doubtful { // callers are let in again
		c.doubtful = false
		c.slot.setAway(nil)
	}
	c.arm()
	return took, true
}

// check is what the timer runs. Either the deadline has come, or a statement has
// had no response for long.
func (c *connection) check() {
	if c.Expired() {
		c.LoseLease()
		return
	}
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.dead.Load() {
		return
	}
	if c.underWay && !c.doubtful && Now() >= c.sent+s.options.timeout {
		c.doubtful = true
		c.slot.setAway(ErrNoAnswer)
		s.passOn(c)
	}
	c.alarm = keytable.Forever // it has just fired
	c.arm()
}

// arm sees that the timer fires when the next thing is due, or before. Each
// statement moves that moment. To leave the timer alone costs nothing. s.mu is
// held.
func (c *connection) arm() {
	next := time.Duration(c.deadline.Load())
	if c.underWay && !c.doubtful {
		next = min(next, c.sent+c.s.options.timeout)
	}
	if next < c.alarm {
		c.alarm = next
		c.timer.Reset(next - Now())
	}
}
