package sqllock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A connection is one connection of a Session while it lives, and what locks are as
// good as: all locks on it end together.
//
// Invariant: while not dead and now < deadline, the server has not freed a lock
// of this connection for its silence. The server counts the lease from the end
// of a statement at the earliest, which is after we sent it; so the deadline is
// the time we sent the last statement that was answered, plus the lease, less
// what clocks may differ by. Two clocks must both be before it: the monotonic one, and
// one that goes on while the system is suspended.
type connection struct {
	slot    *slot
	session dialect.Session
	watch   *watch // nil where the socket cannot be reached

	deadline     atomic.Int64  // by now
	deadlineBoot atomic.Int64  // by options.bootTime
	dead         atomic.Bool   // set once, under table.mu
	gone         chan struct{} // closed when dead
	stopped      chan struct{} // closed when run has returned

	stats        batchStats    // run's own, as the next five
	tended       time.Duration // when tend last did what is due
	needsLook    bool          // what is queued waits for a look at the server's lock table
	looked       bool          // it was looked at since the last statement
	registered   time.Duration // when what is held was last written into the registry
	unregistered bool          // which failed

	// protected by table.mu
	batch         batch
	boot          bootOffset
	tokenRequests []*tokenRequest            // who waits for a lock's token
	secrets       map[secretCheck]*secretUse // those that the connection has
	wantedSecrets []secretCheck              // those to ask for
	secretsSeen   time.Duration              // when idle ones were last looked for
	held          int                        // locks on this connection
	stalled       bool
	timer         *time.Timer   // for the deadline, or for a statement without answer
	alarm         time.Duration // when the timer fires at the latest; never after what is due next
	idle          int           // heartbeats since it last held a lock
	served        bool          // it has answered a statement
	failed        int           // statements in a row that the server refused
}

// Why a lease was lost, for the log.
const (
	lossLease  = "no answer for the length of the lease"
	lossUnlock = "a lock was not there when it was given back"
	lossHeld   = "a lock was not there any more"
)

var (
	errNoConnection  = fmt.Errorf("%w: no connection", ErrUnavailable)
	errNoAnswer      = fmt.Errorf("%w: it does not answer", ErrUnavailable)
	errSessionClosed = fmt.Errorf("%w: the Session was closed before it answered", ErrUnavailable)
	errSessionLost   = fmt.Errorf("%w: the connection was lost before it answered", ErrUnavailable)
)

func isUnavailable(err error) bool { return errors.Is(err, ErrUnavailable) }

// newConnection begins the lease of session, which has just answered.
func newConnection(sl *slot, session dialect.Session) *connection {
	c := &connection{
		slot: sl, session: session, watch: newWatch(session.Socket()),
		gone: make(chan struct{}), stopped: make(chan struct{}), secrets: map[secretCheck]*secretUse{}, registered: now(),
	}
	// Opening took several statements; nothing is held yet, so a deadline that
	// is a little late does no harm until the first exchange sets it right.
	trust := sl.s.options.validFor()
	c.alarm = now() + trust
	c.deadline.Store(int64(c.alarm))
	c.deadlineBoot.Store(int64(sl.s.options.bootTime() + trust))
	c.timer = time.AfterFunc(trust, c.check)
	return c
}

// expired reports whether the locks of l are no longer certainly held.
func (c *connection) expired() bool {
	return c.dead.Load() || c.overdue()
}

// overdue reports whether the server has not answered for the lease.
func (c *connection) overdue() bool {
	return c.late() || int64(c.slot.s.options.bootTime()) >= c.deadlineBoot.Load()
}

// late is overdue by the monotonic clock, which is much cheaper to read: enough where
// no effect of a caller's hangs on the answer.
func (c *connection) late() bool { return int64(now()) >= c.deadline.Load() }

// hasServed reports whether l's connection has answered a statement.
func (c *connection) hasServed() bool {
	c.slot.s.table.mu.Lock()
	defer c.slot.s.table.mu.Unlock()
	return c.served
}

// retireLocked ends l without loss: nothing is held, or who holds is told otherwise.
// table.mu is held.
func (c *connection) retireLocked() {
	if !c.dead.Swap(true) {
		c.timer.Stop()
		close(c.gone)
	}
}

// loseConnection ends l and every lock on it. table.mu is not held.
func (c *connection) loseConnection(why string) {
	sl, t := c.slot, c.slot.s.table
	t.mu.Lock()
	if c.dead.Load() {
		t.mu.Unlock()
		return
	}
	c.retireLocked()
	sl.lostLocked()
	sl.s.rememberProcessLocked(c)
	sl.s.counters.losses++
	var locks []*Lock
	for k := range t.keys.all() {
		switch {
		case sessionKeyOf(k).conn == c:
			own := sessionKeyOf(k)
			own.conn, own.use = nil, nil
			locks = k.appendHolders(locks)
			t.freedLocked(k, ErrLost)
		case k.phase == requested && sessionKeyOf(k).slot == sl:
			sl.s.denyKeyLocked(k, errSessionLost)
		}
	}
	t.mu.Unlock()
	for _, lock := range locks {
		lock.lose(endLost)
	}
	sl.s.options.log.Warn("sqllock: connection lost", "reason", why, "locks", len(locks))
}

// check is what the timer runs: the deadline has come, or callers have waited
// long enough for an answer.
func (c *connection) check() {
	if c.overdue() {
		c.loseConnection(lossLease)
		return
	}
	t := c.slot.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.dead.Load() {
		return
	}
	if c.batch.underWay && !c.stalled && now() >= c.batch.oldest+answerTimeout {
		c.stalled = true
		c.slot.failQueueLocked(errNoAnswer)
	}
	c.alarm = forever // it has just fired
	c.armLocked()
}

// armLocked sees that the timer fires when the next thing is due, or before:
// each statement moves that, and a timer that is left alone costs nothing.
// table.mu is held.
func (c *connection) armLocked() {
	next := time.Duration(c.deadline.Load())
	if c.batch.underWay && !c.stalled {
		next = min(next, c.batch.oldest+answerTimeout)
	}
	if next < c.alarm {
		c.alarm = next
		c.timer.Reset(next - now())
	}
}
