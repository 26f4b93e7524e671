package sqllock

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A slot is a place for one connection of a Session, with the queue of what is to
// be sent on it. The connection may be lost and replaced. What has not been sent by
// then stays in the queue.
//
// Invariant: while oldest is not 0 and there is a connection, its goroutine is at
// work or has a token in wake. Only the first call to queue something leaves one.
type slot struct {
	s         *Session
	wake      chan struct{} // holds a token when there may be something to send
	queued    atomic.Int64  // the length of the queue, a moment ago
	abandoned *atomic.Int32 // goroutines stuck in the driver, left behind: of the first slot, or of all others

	// protected by s.table.mu
	conn       *connection   // nil: none
	away       error         // why requests have no chance: no answer for answerTimeout, or no connection
	releases   []*keyState   // to give back; some may have been taken over since
	tries      []*keyState   // to take
	spareTries []*keyState   // memory for tries
	groups     []*request    // to take some of
	oldest     time.Duration // when the first of the queue came; 0: no caller waits for what is queued
	down       *time.Timer   // until calls fail, while there is no connection
	wasLost    bool          // there was a connection, or an attempt at one failed
	retired    bool          // not needed any more
}

// answerTimeout is how long the database may leave callers without an answer
// before they get ErrUnavailable.
const answerTimeout = 900 * time.Millisecond

func newSlot(s *Session) *slot {
	return &slot{s: s, wake: make(chan struct{}, 1), abandoned: new(atomic.Int32)}
}

// loadLocked is how many locks are on sl, or may soon be.
func (sl *slot) loadLocked() int {
	n := len(sl.tries) + len(sl.groups)
	if sl.conn != nil {
		n += sl.conn.held + sl.conn.batch.mayBring()
	}
	return n
}

// notifyLocked says that something was queued.
func (sl *slot) notifyLocked() {
	sl.storeLengthLocked()
	if sl.oldest == 0 {
		sl.oldest = now()
		sl.signal()
	}
}

func (sl *slot) signal() {
	select {
	case sl.wake <- struct{}{}:
	default:
	}
}

// storeLengthLocked stores how long the queue is, for coalesce, which looks often.
func (sl *slot) storeLengthLocked() {
	sl.queued.Store(int64(len(sl.releases) + len(sl.tries) + len(sl.groups)))
}

// keepConnected connects sl again and again, until the Session is closed or sl
// retires. c is its first connection, or nil. The pauses grow while attempts bring
// no connection, or one that dies before it has answered.
func (sl *slot) keepConnected(c *connection) {
	defer sl.s.tasks.Done()
	for failures := 0; !sl.done(); {
		if c == nil {
			session, err := sl.connect(sl.s.ctx, sl.s.enrollLater)
			if err != nil {
				sl.unreachable(fromDialect(err))
				sl.backOff(failures)
				failures++
				continue
			}
			c = sl.serve(session)
		}
		<-c.gone
		sl.closeConnection(c)
		if c.hasServed() {
			failures = 0
		} else {
			sl.backOff(failures)
			failures++
		}
		c = nil
	}
}

func (sl *slot) done() bool {
	sl.s.table.mu.Lock()
	defer sl.s.table.mu.Unlock()
	return sl.retired || sl.s.table.closed
}

// backOff pauses after a failure that followed on others, or returns when the
// Session is closed.
func (sl *slot) backOff(failures int) {
	timer := time.NewTimer(jitter(min(backoffMin<<min(failures, 10), backoffMax)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sl.s.ctx.Done():
	}
}

// serve makes a connection of session, and starts it.
func (sl *slot) serve(session dialect.Session) *connection {
	t := sl.s.table
	t.mu.Lock()
	c := newConnection(sl, session)
	again := sl.wasLost && !t.closed
	if t.closed {
		c.retireLocked()
	} else {
		sl.conn, sl.away, sl.wasLost = c, nil, false
		if sl.down != nil {
			sl.down.Stop()
		}
		if socket := session.Socket(); socket != nil {
			sl.s.address = socket.RemoteAddr()
		}
	}
	t.mu.Unlock()
	if again {
		sl.s.options.log.Info("sqllock: connected again")
	}
	sl.signal() // for what has queued up meanwhile
	go c.run()
	return c
}

// closeConnection waits for the goroutine of c to end its session, and closes the
// socket under one that is stuck.
func (sl *slot) closeConnection(c *connection) {
	wait := sl.s.options.closeTimeout
	if c.overdue() {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.stopped:
		return
	case <-timer.C:
	}
	c.session.Abort()
	sl.abandoned.Add(1)
	go func() {
		<-c.stopped
		sl.abandoned.Add(-1)
	}()
}

// lostLocked has callers fail once they have had no answer for answerTimeout,
// unless sl is connected again by then.
func (sl *slot) lostLocked() {
	sl.conn, sl.wasLost = nil, true
	wait := answerTimeout
	if sl.oldest != 0 {
		wait = max(sl.oldest+answerTimeout-now(), 0)
	}
	if sl.down != nil {
		sl.down.Reset(wait)
		return
	}
	sl.down = time.AfterFunc(wait, func() {
		sl.s.table.mu.Lock()
		defer sl.s.table.mu.Unlock()
		if sl.conn == nil && sl.away == nil && !sl.s.table.closed {
			sl.failQueueLocked(errNoConnection)
		}
	})
}

// unreachable notes that an attempt to connect failed. A slot that has not
// served yet, and is not the only one, is given up.
func (sl *slot) unreachable(err error) {
	t := sl.s.table
	t.mu.Lock()
	news := false
	switch {
	case t.closed:
	case sl != sl.s.slots[0] && !sl.wasLost:
		sl.s.removeLocked(sl)
		sl.s.growAfter = now() + growPause
		news = true
	default:
		sl.wasLost = true
		if sl.away != nil || !isUnavailable(err) {
			news = sl.away == nil || sl.away.Error() != err.Error()
			sl.failQueueLocked(err)
		}
	}
	t.mu.Unlock()
	if news {
		sl.s.options.log.Warn("sqllock: cannot connect", "reason", err)
	}
}

// failQueueLocked fails the calls that wait for an answer, and those that come from
// now on, with err. Releases stay queued.
func (sl *slot) failQueueLocked(err error) {
	t := sl.s.table
	sl.away = err
	tries, groups := sl.tries, sl.groups
	sl.tries, sl.groups, sl.oldest = nil, nil, 0
	sl.storeLengthLocked()
	for _, k := range tries {
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
