package session

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/choose"
)

// How the connection of a slot is opened, served, closed and replaced.

// The pause between two attempts to connect doubles from backoffMin to
// backoffMax, less a random part.
const (
	backoffMin = 50 * time.Millisecond
	backoffMax = time.Second

	// backoffRejected takes the place of backoffMax while the server rejects the
	// user, the password or the database. A server may count failed logins, and
	// lock the account.
	backoffRejected = 10 * time.Second

	// doublings of backoffMin lead to backoffMax.
	doublings = 5
)

// proofTimeout bounds the proof that locks exclude, on a second connection.
const proofTimeout = 2 * time.Second

// keepConnected connects sl again and again, until the Session is closed or sl
// retires. c is its first connection, or nil. The pauses grow while attempts
// bring no connection, or one that dies before it has answered.
func (sl *slot) keepConnected(c *connection) {
	defer sl.s.tasks.Done()
	for failures := 0; c != nil || !sl.done(); { // a connection is waited for, also if the Session is closed already
		if c == nil {
			session, err := sl.connect(sl.s.ctx, false)
			if err != nil {
				sl.unreachable(err)
				longest := backoffMax
				if errors.Is(err, ErrConfig) {
					longest = backoffRejected
				} else {
					failures = min(failures, doublings) // a rejection at the end of an outage is the first one
				}
				sl.backOff(failures, longest)
				failures++
				continue
			}
			c = sl.serve(session)
		}
		<-c.gone
		sl.closeConnection(c)
		switch {
		case c.unneeded:
			failures = 0
			sl.awaitCaller()
		case c.served:
			failures = 0
		default:
			sl.backOff(failures, backoffMax)
			failures++
		}
		c = nil
	}
}

// done reports whether sl needs no connection any more.
func (sl *slot) done() bool {
	sl.s.mu.Lock()
	defer sl.s.mu.Unlock()
	return sl.retired || sl.s.closed
}

// connect opens a connection. One slot at a time does so: each may need two
// connections of the pool, and two slots could wait for each other's.
//
// opens says that Open calls it. The error is in callers' terms.
func (sl *slot) connect(caller context.Context, opens bool) (dialect.Session, error) {
	if err := sl.learnDialect(caller); err != nil {
		return nil, FromDialect(err)
	}
	if err := sl.s.options.Validate(); err != nil { // what was right while the dialect was not known
		if !opens {
			err = fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return nil, err
	}
	session, err := attempt(caller, sl, func(ctx context.Context) (dialect.Session, error) {
		session, err := sl.s.options.Dialect.Open(ctx, sl.s.db, sl.s.settings())
		if err == nil && sl.s.registrar != nil {
			if err = sl.s.enroll(ctx, session, opens); err != nil {
				session.Destroy()
			}
		}
		return session, err
	}, dialect.Session.Destroy)
	return session, FromDialect(err)
}

// learnDialect detects the kind of database, unless it is known. Until then sl
// is the only slot, and nothing needs what depends on the kind.
func (sl *slot) learnDialect(caller context.Context) error {
	s := sl.s
	if s.options.Dialect != nil {
		return nil
	}
	d, err := attempt(caller, sl, func(ctx context.Context) (dialect.Dialect, error) {
		return choose.Dialect(ctx, s.db, s.options.Table)
	}, func(dialect.Dialect) {})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.options.Dialect = d
	s.options.Suit()
	return nil
}

// settings returns what a connection of s is opened with.
func (s *Session) settings() dialect.Settings {
	return dialect.Settings{
		Lease:            s.options.Lease,
		StatementTimeout: s.options.validFor(),
		Proof:            s.options.bound(proofTimeout),
		Socket:           s.options.Socket,
	}
}

// serve makes a connection of session, and starts its goroutine. If the Session
// was closed meanwhile, the connection ends at once.
func (sl *slot) serve(session dialect.Session) *connection {
	s := sl.s
	s.mu.Lock()
	c := newConnection(sl, session)
	again, closed := sl.wasLost, s.closed
	if closed {
		c.markDead()
	} else {
		sl.conn, sl.wasLost = c, false
		sl.setAway(nil)
		s.used = Now()
	}
	s.mu.Unlock()
	if again && !closed {
		s.options.Log.Info("sqllock: connected again")
	}
	for _, o := range s.options.Observers {
		if o.Connected != nil && !closed {
			o.Connected()
		}
	}
	signal(sl.wake) // for what has queued up meanwhile
	go c.run()
	return c
}

// closeConnection waits for the goroutine of c to end its session. If it is
// stuck in the driver, closeConnection closes the socket and abandons the
// goroutine.
func (sl *slot) closeConnection(c *connection) {
	wait := sl.s.options.closeTimeout
	if c.remaining() == 0 {
		wait = 0
	}
	select {
	case <-c.stopped:
		return
	case <-time.After(wait):
	}
	c.session.Abort()
	sl.inDriver.Add(1)
	go func() {
		<-c.stopped
		sl.inDriver.Add(-1)
	}()
}

// unreachable notes that an attempt to connect failed. A slot that has never
// served, and is not the only one, is removed. A reason that is new is logged.
func (sl *slot) unreachable(err error) {
	s := sl.s
	s.mu.Lock()
	news := false
	switch {
	case s.closed:
	case sl != s.slots[0] && !sl.wasLost:
		s.remove(sl)
		s.growAfter = Now() + growPause
		news = true
	default:
		sl.wasLost = true
		if sl.away != nil || !errors.Is(err, ErrUnavailable) {
			news = sl.away == nil || sl.away.Error() != err.Error()
			sl.setAway(err)
		}
	}
	s.mu.Unlock()
	if news {
		s.options.Log.Warn("sqllock: cannot connect", "reason", err)
	}
}

// backOff pauses after a failure, longer after each in a row, up to longest. It
// returns early when the Session is closed.
func (sl *slot) backOff(failures int, longest time.Duration) {
	select {
	case <-time.After(jitter(min(backoffMin<<min(failures, 10), longest))):
	case <-sl.s.ctx.Done():
	}
}
