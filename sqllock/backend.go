package sqllock

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A backend is a place for one connection of a Session, and the queue of what
// is to be sent on it. Its connection may be lost and replaced; what has not
// been sent by then stays in the queue.
//
// Invariant: while oldest is not 0 and there is a connection, its goroutine is at
// work or has a token in wake: only the first to queue something leaves one.
type backend struct {
	s      *Session
	wake   chan struct{} // holds a token when there may be something to send
	strays *atomic.Int32 // goroutines stuck in the driver, left behind: of the first backend, or of all others

	// protected by s.table.mu
	lease    *lease        // the connection, or nil
	away     error         // why asking is in vain: no answer for patience, or no connection
	releases []*entry      // to give back; some may have been taken over since
	tries    []*entry      // to take
	spare    []*entry      // memory for tries
	groups   []*ask        // to take one of
	oldest   time.Duration // when the first of the queue came; 0: nobody waits for what is queued
	down     *time.Timer   // until calls fail, while there is no connection
	wasLost  bool          // there was a connection, or an attempt at one failed
	retired  bool          // not needed any more
}

const (
	// patience is how long the database may leave callers without an answer
	// before they get ErrUnavailable.
	patience = 900 * time.Millisecond

	connectTimeout = 5 * time.Second
	backoffMin     = 50 * time.Millisecond
	backoffMax     = time.Second

	// maxStrays bounds the goroutines, and so the connections, that a stuck
	// driver can cost: beyond it no attempt to connect is made.
	maxStrays = 4
)

func newBackend(s *Session) *backend {
	return &backend{s: s, wake: make(chan struct{}, 1), strays: new(atomic.Int32)}
}

// loadLocked is how many locks are on b or may soon be.
func (b *backend) loadLocked() int {
	n := len(b.tries) + len(b.groups)
	if b.lease != nil {
		n += b.lease.held + b.lease.flight.wantedLocked()
	}
	return n
}

// notifyLocked says that something was queued.
func (b *backend) notifyLocked() {
	if b.oldest == 0 {
		b.oldest = now()
		b.signal()
	}
}

func (b *backend) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// queued is how much there is to send.
func (b *backend) queued() int {
	b.s.table.mu.Lock()
	defer b.s.table.mu.Unlock()
	return len(b.releases) + len(b.tries) + len(b.groups)
}

// run keeps b connected until the Session is closed or b retires. l is its
// first connection, or nil. Attempts that bring no connection, or one that dies
// before it has answered, are made at growing intervals.
func (b *backend) run(l *lease) {
	defer b.s.tasks.Done()
	for failures := 0; !b.done(); {
		if l == nil {
			session, err := b.connect(b.s.ctx, b.s.enrollLater)
			if err != nil {
				b.unreachable(fromDialect(err))
				b.rest(failures)
				failures++
				continue
			}
			l = b.serve(session)
		}
		<-l.gone
		b.leave(l)
		if l.hasServed() {
			failures = 0
		} else {
			b.rest(failures)
			failures++
		}
		l = nil
	}
}

func (b *backend) done() bool {
	b.s.table.mu.Lock()
	defer b.s.table.mu.Unlock()
	return b.retired || b.s.table.closed
}

// rest pauses after a failure that followed on others, or returns when the
// Session is closed.
func (b *backend) rest(failures int) {
	timer := time.NewTimer(jitter(min(backoffMin<<min(failures, 10), backoffMax)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.s.ctx.Done():
	}
}

// serve makes session b's connection.
func (b *backend) serve(session dialect.Session) *lease {
	t := b.s.table
	t.mu.Lock()
	l := newLease(b, session)
	again := b.wasLost && !t.closed
	if t.closed {
		l.retireLocked()
	} else {
		b.lease, b.away, b.wasLost = l, nil, false
		if b.down != nil {
			b.down.Stop()
		}
		if socket := session.Socket(); socket != nil {
			b.s.address = socket.RemoteAddr()
		}
	}
	t.mu.Unlock()
	if again {
		b.s.options.log.Info("sqllock: connected again")
	}
	b.signal() // for what has queued up meanwhile
	go l.run()
	return l
}

// leave waits for l's goroutine to end its connection, and closes the socket
// under one that is stuck.
func (b *backend) leave(l *lease) {
	wait := b.s.options.parting
	if l.overdue() {
		wait = 0
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-l.stopped:
		return
	case <-timer.C:
	}
	l.session.Abort()
	b.strays.Add(1)
	go func() {
		<-l.stopped
		b.strays.Add(-1)
	}()
}

// lostLocked has callers fail once they have had no answer for patience, unless b is
// connected again by then.
func (b *backend) lostLocked() {
	b.lease, b.wasLost = nil, true
	wait := patience
	if b.oldest != 0 {
		wait = max(b.oldest+patience-now(), 0)
	}
	if b.down != nil {
		b.down.Reset(wait)
		return
	}
	b.down = time.AfterFunc(wait, func() {
		b.s.table.mu.Lock()
		defer b.s.table.mu.Unlock()
		if b.lease == nil && b.away == nil && !b.s.table.closed {
			b.giveUpOnLocked(errNoConnection)
		}
	})
}

// unreachable notes that an attempt to connect failed. A backend that has not
// served yet, and is not the only one, is given up.
func (b *backend) unreachable(err error) {
	t := b.s.table
	t.mu.Lock()
	news := false
	switch {
	case t.closed:
	case b != b.s.backends[0] && !b.wasLost:
		b.s.removeLocked(b)
		b.s.growAfter = now() + growPause
		news = true
	default:
		b.wasLost = true
		if b.away != nil || !isUnavailable(err) {
			news = b.away == nil || b.away.Error() != err.Error()
			b.giveUpOnLocked(err)
		}
	}
	t.mu.Unlock()
	if news {
		b.s.options.log.Warn("sqllock: cannot connect", "reason", err)
	}
}

// giveUpOnLocked fails those who wait for an answer, and those who ask from now on,
// with err. Releases stay queued.
func (b *backend) giveUpOnLocked(err error) {
	t := b.s.table
	b.away = err
	tries, groups := b.tries, b.groups
	b.tries, b.groups, b.oldest = nil, nil, 0
	for _, e := range tries {
		if e.state == queued && e.backend == b {
			t.refusedLocked(e, err)
		}
	}
	for _, a := range groups {
		a.grouped = false
		for _, e := range a.entries {
			if e != nil && e.state == idle {
				t.refusedLocked(e, err)
			}
		}
	}
	for _, e := range b.releases {
		if e.state == releasing && e.holds.lease.backend == b {
			t.settleReplyLocked(e, err)
			t.dismissLocked(e, err, everybody)
		}
	}
	if b.lease != nil {
		b.lease.flight.failLocked(t, err)
	}
}
