package sqllock

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// How long the locks of a connection are certainly held.

// A lease is what the locks of a connection are as good as.
//
// Invariant: while now is before deadline, and boot time before deadlineBoot,
// the server has not freed a lock of the connection because the connection was
// silent. The server counts the lease from the end of a statement at the
// earliest, which is after the statement was sent. So the deadline is the time
// at which the last answered statement was sent, plus the lease, less what
// clocks may differ by (options.validFor). It takes both clocks: the monotonic
// one stands still while the system is suspended.
//
// These words say how far a connection, and then its slot, has come:
//
//	stalled  callers have waited 0.9 s for the response; they were told, and locks stay
//	late     the deadline has passed by the monotonic clock
//	overdue  the deadline has passed by one of the clocks
//	dead     the connection has ended with all its locks; gone is then closed
//	expired  dead or overdue: its locks are no longer certainly held
//	over     dead or late
//	away     of a slot: requests have no chance, because it is stalled or not connected
type lease struct {
	deadline     atomic.Int64 // by now
	deadlineBoot atomic.Int64 // by options.bootTime

	// protected by table.mu
	boot    bootOffset
	stalled bool          // callers have been told that there is no answer
	timer   *time.Timer   // for the deadline, or for a statement without answer
	alarm   time.Duration // when the timer fires at the latest; never after what is due next
}

// beginLease begins the lease of c, which has just answered.
//
// To open it took several statements. The deadline should count from when the
// last of them was sent, and counts from its answer. Nothing is held yet, so
// that does no harm until the first statement corrects it.
func (c *connection) beginLease() {
	validFor := c.slot.s.options.validFor()
	c.alarm = now() + validFor
	c.deadline.Store(int64(c.alarm))
	c.deadlineBoot.Store(int64(c.slot.s.options.bootTime() + validFor))
	c.timer = time.AfterFunc(validFor, c.check)
}

// expired reports whether the locks of c are no longer certainly held.
func (c *connection) expired() bool {
	return c.dead.Load() || c.overdue()
}

// loseLease ends c and its locks, because it has expired. If c is dead, its
// locks have ended when loseLease returns, since loseLease takes table.mu.
func (c *connection) loseLease() { c.loseConnection(lossLease) }

// overdue reports whether the server has not answered for the lease.
func (c *connection) overdue() bool {
	return c.late() || int64(c.slot.s.options.bootTime()) >= c.deadlineBoot.Load()
}

// remaining returns how long the locks of c are certainly held without another
// response, or 0 if they are not.
func (c *connection) remaining() time.Duration {
	boot := time.Duration(c.deadlineBoot.Load()) - c.slot.s.options.bootTime()
	return max(min(time.Duration(c.deadline.Load())-now(), boot), 0)
}

// over is expired by the monotonic clock alone, which is much cheaper to read.
// That is enough where no effect of a caller depends on the result.
func (c *connection) over() bool { return c.dead.Load() || c.late() }

// late is overdue by the monotonic clock alone.
func (l *lease) late() bool { return int64(now()) >= l.deadline.Load() }

// sendingLocked notes that a statement is about to be sent. Since oldest,
// callers have waited for its response or for a later one; 0 means now.
func (c *connection) sendingLocked(oldest time.Duration) {
	b := &c.batch
	c.boot.refresh(c.slot.s.options.bootTime)
	b.underWay, b.sent, b.oldest = true, now(), oldest
	b.sentBoot = b.sent + c.boot.offset
	if oldest == 0 {
		b.oldest = b.sent
	}
	c.armLocked()
}

// renewLocked notes that the statement under way was answered at this time. It
// reports whether that is in time.
func (c *connection) renewLocked(at time.Duration) bool {
	c.batch.underWay = false
	if c.dead.Load() {
		return false
	}
	c.served = true
	// Too late for what was held: the timer is about to say so. After a suspend, an
	// answer that is late by the boot clock moves the other deadline no further
	// than it may.
	if c.late() {
		c.timer.Reset(0)
		return false
	}
	validFor := c.slot.s.options.validFor()
	c.deadline.Store(int64(c.batch.sent + validFor))
	c.deadlineBoot.Store(int64(c.batch.sentBoot + validFor))
	c.endStallLocked()
	c.armLocked()
	return true
}

// endStallLocked lets callers in again, because the server has answered. c
// lives.
func (c *connection) endStallLocked() {
	if c.stalled {
		c.stalled, c.slot.away = false, nil
	}
}

// renew is renewLocked for a caller that does not hold the mutex.
func (c *connection) renew() {
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.renewLocked(now())
}

// check is what the timer runs. Either the deadline has come, or callers have
// waited long enough for a response.
func (c *connection) check() {
	if c.overdue() {
		c.loseLease()
		return
	}
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return
	}
	if c.batch.underWay && !c.stalled && now() >= c.batch.oldest+c.slot.s.options.timeout {
		c.stalled = true
		c.slot.failQueueLocked(errNoAnswer)
	}
	c.alarm = forever // it has just fired
	c.armLocked()
}

// armLocked sees that the timer fires when the next thing is due, or before.
// Each statement moves that moment. To leave the timer alone costs nothing.
func (c *connection) armLocked() {
	next := time.Duration(c.deadline.Load())
	if c.batch.underWay && !c.stalled {
		next = min(next, c.batch.oldest+c.slot.s.options.timeout)
	}
	if next < c.alarm {
		c.alarm = next
		c.timer.Reset(next - now())
	}
}

// completeAside completes a statement that changes no lock. It reports whether
// the statement was a heartbeat.
//
// If the server has rejected it, the locks are as they were. But that proves
// nothing, so the deadline stays, and a heartbeat is still due.
func (c *connection) completeAside(err error) (beat bool) {
	if err != nil && !dialect.Survives(err) {
		c.loseConnection(lossBy(err))
		return true
	}
	s := c.slot.s
	s.table.mu.Lock()
	if err != nil {
		c.batch.underWay = false
		if !c.dead.Load() {
			c.endStallLocked()
		}
		s.table.mu.Unlock()
		return false
	}
	answered := now()
	took, beats := answered-c.batch.sent, c.round.beat
	if beats {
		s.counters.exchanged(took, 0)
	}
	c.renewLocked(answered)
	s.table.mu.Unlock()
	if beats {
		s.options.observers.exchanged(took, 0)
	}
	return true
}
