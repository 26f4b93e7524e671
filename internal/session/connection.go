package session

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// A connection is one connection of a Session while it lives. All locks on it
// end together.
//
// Its goroutine, run, alone uses the session. It prepares a statement, sends it
// and completes it, one after the other. s.mu protects what the goroutine shares
// with others.
type connection struct {
	s       *Session
	slot    *slot
	session dialect.Session
	watch   *watch // nil where the socket cannot be reached
	owner   keytable.Owner
	batch   keytable.Batch // protected by the table while it is under way
	errands []func(heartbeat bool) *errand

	lease
	dead     atomic.Bool   // set once, under s.mu
	gone     chan struct{} // closed when dead
	unneeded bool          // it was closed because no caller needed it; set before gone is closed
	stopped  chan struct{} // closed when run has returned

	// of run alone
	statement dialect.Batch
	codec     codec
	roundTrip time.Duration // of the last batch
	woken     int           // callers whom it answered
	turn      time.Duration // when the errands last had that of a heartbeat; 0: never
	failed    int           // batches in a row that have not released what they should

	// protected by s.mu
	brings int  // locks that the batch under way may bring
	idle   int  // heartbeats since it last held a lock, if its slot is not the first
	served bool // it has answered a statement; it does not change once c is gone
	uses   map[Secret]bool

	// of the errands; protected by s.mu
	drawing      *drawing // the next; nil: no caller waits for one
	surveyWanted bool     // requests wait for it
	surveyed     bool     // since the last batch
	unregistered bool     // the last write to the registry has failed
}

// newConnection returns the connection of session, which has just answered.
func newConnection(sl *slot, session dialect.Session) *connection {
	c := &connection{
		s: sl.s, slot: sl, session: session, watch: newWatch(session.Socket()),
		gone: make(chan struct{}), stopped: make(chan struct{}), uses: make(map[Secret]bool),
	}
	c.owner.Life = c
	c.errands = errandsOf(c)
	c.beginLease()
	return c
}

// markDead marks c as dead, and stops its timer. The caller sees to the locks on
// it: there are none, or their holders are told. s.mu is held.
func (c *connection) markDead() {
	if !c.dead.Swap(true) {
		c.timer.Stop()
		close(c.gone)
	}
}

// lose ends c and every lock on it. The keys go to their waiters by the next
// connection, and the calls that the lost statement tried for fail. s.mu is not
// held.
func (c *connection) lose(why loss) {
	s := c.s
	s.mu.Lock()
	if c.dead.Load() {
		s.mu.Unlock()
		return
	}
	c.markDead()
	c.slot.lost()
	s.left.remember(c)
	ends := s.Table.Lose(&c.owner, &c.batch, errLost)
	s.passOn(c)
	s.counters.lost(why.cause, len(ends))
	s.mu.Unlock()
	s.Table.Look() // no batch may come to have the keys of waiters tried again
	ends.Announce()
	s.options.Log.Warn("sqllock: connection lost", "reason", why.reason, "locks", len(ends))
	for _, o := range s.options.Observers {
		if o.Lost != nil {
			o.Lost(why.cause, len(ends))
		}
	}
}

// run sends statements until c is dead. It alone uses the session, and ends it.
//
// It waits for the first of these: something is queued, the socket has
// something to read, a heartbeat is due, or c is dead. After a short silence it
// starts to watch the socket.
func (c *connection) run() {
	defer close(c.stopped)
	defer c.watch.stop()
	defer c.session.Destroy()
	every := c.s.options.Heartbeat
	quiet := min(watchAfter, every)
	timer := time.NewTimer(quiet)
	defer timer.Stop()
	last := Now() // when a statement was last answered, about
	for {
		due, beat := false, false
		select {
		case <-c.slot.wake:
		case <-c.watch.readable():
			beat = true // it is the end of the connection, unless a statement says otherwise
		case <-timer.C:
			silent := Now() - last
			due = silent >= every
			beat = due
			c.watch.arm()
			timer.Reset(max(every-silent, 0))
		case <-c.gone:
		}
		if c.dead.Load() {
			signal(c.slot.wake) // the token may have been for the next connection
			return
		}
		if due && c.endIfUnneeded() {
			return
		}
		for c.round(due, beat) {
			due, beat = false, false
			last = Now()
			timer.Reset(quiet)
		}
	}
}

// round sends what is due of each kind, once. It reports whether it has sent
// something, and c lives. due says that a heartbeat is due; beat says that a
// statement must be sent. With traffic the errands have their turn once a
// heartbeat, too, and the first one at once.
func (c *connection) round(due, beat bool) (sent bool) {
	if at := Now(); due || c.turn == 0 || at-c.turn >= c.s.options.Heartbeat {
		due, c.turn = true, at
	}
	for _, next := range c.errands {
		e := c.begin(next, due)
		if e == nil {
			continue
		}
		rejected, lives := c.carryOut(e)
		if !lives {
			return false
		}
		sent, beat = true, rejected
	}
	return c.exchange(beat) || sent && !c.dead.Load()
}

// begin returns the errand to send now, or nil. Callers who have queued wait for
// its statement, too.
func (c *connection) begin(next func(heartbeat bool) *errand, due bool) *errand {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.dead.Load() {
		return nil
	}
	e := next(due)
	if e != nil {
		c.sending()
	}
	return e
}

// carryOut sends the statement of errand e. The response is a heartbeat, unless
// the server has rejected the statement. That costs no lock, and proves none. So
// the deadline stays, and a batch follows at once.
func (c *connection) carryOut(e *errand) (rejected, lives bool) {
	c.watch.expect()
	err := e.send()
	c.watch.answered()
	var log func()
	complete := func() { log = e.complete(err) }
	s := c.s
	switch {
	case err == nil:
		lives = c.answered(0, complete)
	case !dialect.Survives(err):
		c.lose(c.lossBy(err))
	default:
		s.mu.Lock()
		if lives = !c.dead.Load(); lives {
			c.underWay = false
			complete()
		}
		s.mu.Unlock()
	}
	if log != nil {
		log()
	}
	return err != nil, lives
}

// An errand is a statement that a plain request never needs. A connection sends
// at most one of each kind in a round, so none keeps the others from their turn.
type errand struct {
	send func() error

	// complete acts on the response, or on the error of a statement that has cost
	// no lock. It returns what to log; nil: nothing. It is not called if c is lost.
	// s.mu is held.
	complete func(error) (log func())
}

// errandsOf returns the kinds of errands of c, in the order of their turns. Each
// func returns the errand to send now, or nil, with s.mu held. heartbeat says
// that one is due.
func errandsOf(c *connection) []func(heartbeat bool) *errand {
	errands := []func(bool) *errand{c.drawToken, c.endLeft}
	if _, ok := c.session.(dialect.Surveyor); ok {
		errands = append(errands, c.survey)
	}
	if _, ok := c.session.(dialect.SecretChecker); ok {
		errands = append(errands, c.checkSecret)
	}
	if c.s.registrar != nil {
		errands = append(errands, c.register)
	}
	return errands
}
