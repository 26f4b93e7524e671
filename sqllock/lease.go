package sqllock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A lease is one connection of a Session while it lives, and what locks are as
// good as: all locks on it end together.
//
// Invariant: while not dead and now < deadline, the server has not freed a lock
// of this connection for its silence. The server counts the lease from the end
// of a statement at the earliest, which is after we sent it; so the deadline is
// the time we sent the last statement that was answered, plus the lease, less
// what clocks may differ by. Two clocks must both be before it: the monotonic one, and
// one that goes on while the system is suspended.
type lease struct {
	backend *backend
	session dialect.Session
	watch   *watch // nil where the socket cannot be reached

	deadline     atomic.Int64  // by now
	deadlineBoot atomic.Int64  // by options.bootTime
	dead         atomic.Bool   // set once, under table.mu
	gone         chan struct{} // closed when dead
	stopped      chan struct{} // closed when run has returned

	pace         pace          // run's own, as the next five
	tended       time.Duration // when tend last did what is due
	looks        bool          // what is queued waits for a look at the server's lock table
	looked       bool          // it was looked at since the last statement
	registered   time.Duration // when what is held was last written into the registry
	unregistered bool          // which failed

	// protected by table.mu
	flight     flight
	boot       bootOffset
	draws      []*draw          // who waits for a lock's token
	claims     map[claim]*stake // those that the connection has
	wanted     []claim          // those to ask for
	claimsSeen time.Duration    // when idle ones were last looked for
	held       int              // locks on this connection
	stalled    bool
	timer      *time.Timer   // for the deadline, or for a statement without answer
	alarm      time.Duration // when the timer fires at the latest; never after what is due next
	idle       int           // heartbeats since it last held a lock
	served     bool          // it has answered a statement
	failed     int           // statements in a row that the server refused
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

// newLease begins the lease of session, which has just answered.
func newLease(b *backend, session dialect.Session) *lease {
	l := &lease{
		backend: b, session: session, watch: newWatch(session.Socket()),
		gone: make(chan struct{}), stopped: make(chan struct{}), claims: map[claim]*stake{}, registered: now(),
	}
	// Opening took several statements; nothing is held yet, so a deadline that
	// is a little late does no harm until the first exchange sets it right.
	trust := b.s.options.trust()
	l.alarm = now() + trust
	l.deadline.Store(int64(l.alarm))
	l.deadlineBoot.Store(int64(b.s.options.bootTime() + trust))
	l.timer = time.AfterFunc(trust, l.check)
	return l
}

// expired reports whether the locks of l are no longer certainly held.
func (l *lease) expired() bool {
	return l.dead.Load() || l.overdue()
}

// overdue reports whether the server has not answered for the lease.
func (l *lease) overdue() bool {
	return l.late() || int64(l.backend.s.options.bootTime()) >= l.deadlineBoot.Load()
}

// late is overdue by the monotonic clock, which is much cheaper to read: enough where
// no effect of a caller's hangs on the answer.
func (l *lease) late() bool { return int64(now()) >= l.deadline.Load() }

// hasServed reports whether l's connection has answered a statement.
func (l *lease) hasServed() bool {
	l.backend.s.table.mu.Lock()
	defer l.backend.s.table.mu.Unlock()
	return l.served
}

// retireLocked ends l without loss: nothing is held, or who holds is told otherwise.
// table.mu is held.
func (l *lease) retireLocked() {
	if !l.dead.Swap(true) {
		l.timer.Stop()
		close(l.gone)
	}
}

// lose ends l and every lock on it. table.mu is not held.
func (l *lease) lose(why string) {
	b, t := l.backend, l.backend.s.table
	t.mu.Lock()
	if l.dead.Load() {
		t.mu.Unlock()
		return
	}
	l.retireLocked()
	b.lostLocked()
	b.s.leaveLocked(l)
	b.s.counters.losses++
	var locks []*Lock
	for e := range t.entries.all() {
		switch {
		case e.holds.lease == l:
			locks = e.appendHolders(locks)
			t.freedLocked(e, ErrLost)
		case e.state == asking && e.backend == b:
			t.refusedLocked(e, errSessionLost)
		}
	}
	t.mu.Unlock()
	for _, lock := range locks {
		lock.lose(endLost)
	}
	b.s.options.log.Warn("sqllock: connection lost", "reason", why, "locks", len(locks))
}

// check is what the timer runs: the deadline has come, or callers have waited
// long enough for an answer.
func (l *lease) check() {
	if l.overdue() {
		l.lose(lossLease)
		return
	}
	t := l.backend.s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.dead.Load() {
		return
	}
	if l.flight.underWay && !l.stalled && now() >= l.flight.oldest+patience {
		l.stalled = true
		l.backend.giveUpOnLocked(errNoAnswer)
	}
	l.alarm = forever // it has just fired
	l.armLocked()
}

// armLocked sees that the timer fires when the next thing is due, or before:
// each statement moves that, and a timer that is left alone costs nothing.
// table.mu is held.
func (l *lease) armLocked() {
	next := time.Duration(l.deadline.Load())
	if l.flight.underWay && !l.stalled {
		next = min(next, l.flight.oldest+patience)
	}
	if next < l.alarm {
		l.alarm = next
		l.timer.Reset(next - now())
	}
}
