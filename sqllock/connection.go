package sqllock

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A connection is one connection of a Session while it lives. All locks on it end
// together.
//
// Its goroutine, run, alone uses the session: it prepares a statement, sends it
// and completes it, one after the other.
//
// Invariant: while it is not dead, every key that the database holds for it is a
// key state of the table whose sessionKey names it.
type connection struct {
	slot    *slot
	session dialect.Session
	watch   *watch // nil where the socket cannot be reached

	lease
	dead    atomic.Bool   // set once, under table.mu
	gone    chan struct{} // closed when dead
	stopped chan struct{} // closed when run has returned

	// of run alone
	round        round
	stats        batchStats
	tended       time.Duration // when what is due once a heartbeat was last done
	needsLook    bool          // what is queued waits for a look at the server's lock table
	looked       bool          // the table was looked at since the last batch
	registered   time.Duration // when what is held was last written into the registry
	unregistered bool          // that failed

	// protected by table.mu
	batch         batch
	tokenRequests []*tokenRequest
	secrets       map[secretCheck]bool // the checks that the connection uses
	demand        secretDemand
	held          int  // locks on this connection
	idle          int  // heartbeats since it last held a lock
	served        bool // it has answered a statement
	failed        int  // statements in a row that the server rejected
}

// Why a connection was lost, for the log.
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

// newConnection makes the connection of session, which has just answered.
func newConnection(sl *slot, session dialect.Session) *connection {
	c := &connection{
		slot: sl, session: session, watch: newWatch(session.Socket()),
		gone: make(chan struct{}), stopped: make(chan struct{}), secrets: map[secretCheck]bool{}, registered: now(),
	}
	c.beginLease()
	return c
}

// hasServed reports whether c has answered a statement.
func (c *connection) hasServed() bool {
	c.slot.s.table.mu.Lock()
	defer c.slot.s.table.mu.Unlock()
	return c.served
}

// retireLocked ends c without loss: nothing is held, or the holders are told by
// other means. table.mu is held.
func (c *connection) retireLocked() {
	if !c.dead.Swap(true) {
		c.timer.Stop()
		close(c.gone)
	}
}

// loseConnection ends c and every lock on it. table.mu is not held.
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
		switch own := sessionKeyOf(k); {
		case own.conn == c:
			locks = k.appendHolders(locks)
			own.conn = nil
			t.freedLocked(k, ErrLost)
		case k.phase == requested && own.slot == sl:
			sl.s.denyKeyLocked(k, errSessionLost)
		}
	}
	t.mu.Unlock()
	for _, lock := range locks {
		lock.endAs(endLost)
	}
	sl.s.options.log.Warn("sqllock: connection lost", "reason", why, "locks", len(locks))
}
