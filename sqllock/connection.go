package sqllock

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// One connection while it lives, and what its goroutine works on.

// A connection is one connection of a Session while it lives. All locks on it
// end together.
//
// Its goroutine, run, alone uses the session. It prepares a statement, sends it
// and completes it, one after the other.
//
// Invariant: while it is not dead, the table has a key state for every key that
// the database has granted to it. The sessionKey of that state names the
// connection. Two things are not named there. The keys of the batch under way
// are in phase requested, and their sessionKeys name the slot. The locks of
// secret checks have no key state: secrets lists them.
type connection struct {
	slot    *slot
	session dialect.Session
	watch   *watch // nil where the socket cannot be reached

	lease
	dead     atomic.Bool   // set once, under table.mu
	gone     chan struct{} // closed when dead
	unneeded bool          // it was closed because no caller needed it; set before gone is closed
	stopped  chan struct{} // closed when run has returned

	// of run alone
	round        round
	stats        batchStats
	tended       time.Duration // when what is due once a heartbeat was last done
	needsLook    bool          // what is queued waits for a look at the server's lock table
	looked       bool          // the table was looked at since the last batch
	registered   time.Duration // when the registry was last due, whether the write succeeded or not
	unregistered bool          // that failed
	quiet        time.Duration // how long it is silent before its socket is watched

	// protected by table.mu
	batch         batch
	bells         *bells // nil: it hears none
	tokenRequests []*tokenRequest
	secrets       map[secretCheck]bool // the checks that the connection uses
	demand        secretDemand
	held          int  // locks on this connection
	idle          int  // heartbeats since it last held a lock
	served        bool // it has answered a statement
	failed        int  // statements in a row that the server rejected
}

// A round is one pass over the kinds of statements. A connection sends at most
// one of each kind in a round, so none keeps the others from their turn.
//
// Invariant: the fields of a kind belong to its statement from prepare to
// complete. The goroutine of the connection alone uses them, so they need no
// mutex.
//
//	drawToken      tokens: the requests; token: the answer
//	endProcesses   left: before send the processes to end, after it those still there
//	lookAtTable    asked: prepared; table: the answer
//	checkSecret    dropped, wanted: what to drop, then what to use; refused: the answer
//	writeRegistry  register: what to write
//	hearBells      bells: those to listen to; complete: the answer
//	exchangeKeys   none: the batch has its own
//
// due stays as it was when the round began. beat turns false with the first
// statement that proves that the session lives.
type round struct {
	next statementKind // the kind to come to next
	due  bool          // a heartbeat was due when the round began
	beat bool          // a statement must be sent: a heartbeat was due, or the socket was readable
	tend bool          // what is due once a heartbeat is due in this round

	// What the statements carry, by their kind, and their answers.
	tokens   []*tokenRequest
	token    dialect.Token
	left     []dialect.Process // to end; then those that are still there
	asked    int               // locks held or requested when the table was looked at
	table    dialect.LockTable
	wanted   secretCheck // to use
	dropped  secretCheck // to drop before that; zero: none
	refused  bool        // another session uses the namespace with another secret
	register *postgres.Register
	bells    []dialect.Bell
	complete bool // the connection listens to all of them
}

// A statementKind says what a statement is for. The kinds are in the order in
// which a round comes to them.
type statementKind uint8

const (
	drawToken     statementKind = iota // a fencing token
	endProcesses                       // ends server processes that lost connections have left behind
	lookAtTable                        // how full the server's lock table is
	checkSecret                        // makes the check of a key secret
	writeRegistry                      // what is held and waited for
	hearBells                          // the bells of the keys that are waited for
	exchangeKeys                       // the batch: takes keys and gives them back, or is just a heartbeat
	noStatement
)

// A tokenRequest is a call that waits for a token of lock to replace old.
//
// Invariant: the goroutine of the connection alone writes err, and only before
// it closes done. The caller reads err only after that. A caller who has left
// reads nothing.
type tokenRequest struct {
	lock *Lock
	old  *dialect.Token
	err  error
	done chan struct{} // closed when there is a token, or err
}

// newConnection returns the connection of session, which has just answered.
func newConnection(sl *slot, session dialect.Session) *connection {
	c := &connection{
		slot: sl, session: session, watch: newWatch(session.Socket()),
		gone: make(chan struct{}), stopped: make(chan struct{}), secrets: map[secretCheck]bool{}, registered: now(),
	}
	c.bells = newBells(session, c.watch)
	c.quiet = min(watchAfter, sl.s.options.heartbeat)
	c.beginLease()
	return c
}

// hasServed reports whether c has answered a statement.
func (c *connection) hasServed() bool {
	c.slot.s.table.mu.Lock()
	defer c.slot.s.table.mu.Unlock()
	return c.served
}

// markDeadLocked marks c as dead, and stops its timer. The caller sees to the
// locks on it: there are none, or their holders are told. table.mu is held.
func (c *connection) markDeadLocked() {
	if !c.dead.Swap(true) {
		c.timer.Stop()
		close(c.gone)
	}
}

// loseConnection ends c and every lock on it. The keys go to their waiters by
// the next connection, and those that the lost statement requested are denied.
// A call that tried for a key which that statement released requests it again,
// with what is left of its time. table.mu is not held.
func (c *connection) loseConnection(why loss) {
	sl, t := c.slot, c.slot.s.table
	t.mu.Lock()
	if c.dead.Load() {
		t.mu.Unlock()
		return
	}
	c.markDeadLocked()
	c.batch.abandonEach()
	if slices.ContainsFunc(c.batch.releases, (*keyState).tried) {
		sl.waitSinceLocked(c.batch.oldest)
	}
	sl.lostLocked()
	sl.s.rememberProcessLocked(c)
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
	sl.s.counters.lost(why.cause, len(locks))
	ended := endAllLocked(locks, endLost)
	t.mu.Unlock()
	ended.announce()
	sl.s.options.log.Warn("sqllock: connection lost", "reason", why.reason, "locks", len(locks))
	sl.s.options.observers.lost(why.cause, len(locks))
}

// startLocked notes that the batch requests k on c.
func (c *connection) startLocked(k *keyState, m lockMode) {
	sessionKeyOf(k).slot = c.slot
	c.slot.s.table.requestedLocked(k, m)
}

// answeredCrowdedLocked gives the calls for which the batch had no room the time
// of a statement of their own. It began when the batch was sent.
func (c *connection) answeredCrowdedLocked() {
	if sl := c.slot; c.batch.crowded && sl.oldest != 0 {
		sl.oldest = max(sl.oldest, c.batch.sent)
	}
}

// keepLocked notes that c holds k from now on.
func (c *connection) keepLocked(k *keyState) {
	c.held++
	own := sessionKeyOf(k)
	own.conn, own.full = c, nil
}

// keyGrantedLocked notes that c holds k, and lets the table choose the caller.
func (c *connection) keyGrantedLocked(k *keyState, at time.Duration) {
	c.keepLocked(k)
	if k.busySince != 0 {
		c.slot.s.bellsLocked().foundLocked()
	}
	c.slot.s.table.grantedLocked(k, at)
}

// keyDeniedLocked notes that k was not granted: ErrHeld, or an error.
func (c *connection) keyDeniedLocked(k *keyState, err error) {
	c.slot.s.denyKeyLocked(k, err)
}

// keyUntestedLocked notes that the database has said nothing about k.
func (c *connection) keyUntestedLocked(k *keyState) {
	k.phase = idle
	c.slot.s.table.continueLocked(k)
}

// keyFreedLocked notes that c does not hold k any more, because it was
// released.
func (c *connection) keyFreedLocked(k *keyState) {
	c.held--
	sessionKeyOf(k).conn = nil
	c.slot.s.table.freedLocked(k, nil)
}
