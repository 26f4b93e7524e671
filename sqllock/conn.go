package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A ConnLocker is a Locker on one connection that its caller owns: for code that has
// a *sql.Conn (of an *sqlx.Conn, its field Conn) and wants locks of its session.
//
// It proves nothing and sends nothing by itself: there is no heartbeat and no
// lease, and Lock.Err is nil until a call has shown that the connection is
// gone. Each lock taken or given back is a statement, sent during a call; they
// go one after the other, and between those of the connection's owner. Close a
// *sql.Rows of the connection before calling: drivers break when a statement
// comes in between. As with a [Session], no context of a caller reaches the
// driver.
//
// Unlock every lock before closing the connection: (*sql.Conn).Close puts it
// back into the pool with its locks. A connection whose state is in doubt,
// because it did not answer a call in time, is destroyed with its locks. If the
// server is frozen, Close of the connection waits for the statement under way.
// Use one ConnLocker for each connection, never two: PostgreSQL would let one session
// take a key twice.
type ConnLocker struct {
	conn  *dialect.Conn
	table *table

	// protected by table.mu
	queue   []*entry      // to take or to give back
	later   []*entry      // what could not be given back: with the next call
	running bool          // a goroutine sends
	stepped chan struct{} // closed, and made anew, when a statement was answered
	doubt   bool          // a call ended without an answer
}

// OnConn makes a ConnLocker on conn. It panics if conn is nil.
func OnConn(conn *sql.Conn) *ConnLocker {
	if conn == nil {
		panic("sqllock: OnConn needs a *sql.Conn that is not nil")
	}
	c := &ConnLocker{conn: dialect.OnConn(conn), stepped: make(chan struct{})}
	c.table = newTable(c)
	c.table.patience = patience
	c.table.silence = c.mistrustLocked
	return c
}

// TryLock takes key, or fails: ErrHeld, ErrClosed if the connection was closed,
// ErrNotExclusive if another server process answers than before, as behind a
// transaction pooler, ErrUnavailable within a second if there is no answer, or
// ctx's error.
func (c *ConnLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, c.table.acquire, false)
}

// Lock waits for key until ctx ends: first come, first served in this process.
// It tries again from time to time, so that the connection is free in between.
func (c *ConnLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, c.table.acquire, true)
}

// TryRLock takes key as one of several readers, as [Session.TryRLock] does; its errors are
// those of TryLock.
func (c *ConnLocker) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, c.table.acquireShared, false)
}

// RLock is TryRLock that waits until ctx ends, as Lock does.
func (c *ConnLocker) RLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, c.table.acquireShared, true)
}

func (c *ConnLocker) acquire(ctx context.Context, key Key, acquire func(context.Context, Key, bool) (*Lock, error), waits bool) (*Lock, error) {
	c.sendLater()
	lock, err := acquire(ctx, key, waits)
	if err != nil && ctx.Err() != nil {
		c.settleDown(key)
	}
	return lock, err
}

// settleDown waits, after a call for key was given up, until no statement of it
// is under way any more: it would come between those of the connection's owner.
func (c *ConnLocker) settleDown(key Key) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		c.table.mu.Lock()
		e, stepped := c.table.entries.of(key.id()), c.stepped
		if e == nil || !e.underWay() {
			c.table.mu.Unlock()
			return
		}
		c.table.mu.Unlock()
		select {
		case <-stepped:
		case <-timer.C:
			c.table.mu.Lock()
			c.mistrustLocked()
			c.table.mu.Unlock()
			return
		}
	}
}

// underWay reports whether a statement for e is sent or will be, for nobody who
// is there any more.
func (e *entry) underWay() bool {
	switch e.state {
	case asking:
		return len(e.asks) == 0
	case releasing, freeing:
		return e.reply == nil
	}
	return false
}

// mistrustLocked has the connection destroyed if a statement is still under way:
// its answer, and what would have to follow it, would come behind its owner's
// back.
func (c *ConnLocker) mistrustLocked() { c.doubt = c.doubt || c.running }

// ConnLocker is the source of its table.

func (c *ConnLocker) ask(e *entry) {
	e.state = queued
	c.sendLocked(e)
}

// askGroup is never called: a ConnLocker takes one key at a time.
func (c *ConnLocker) askGroup(*ask) {}

func (c *ConnLocker) away(*entry) error { return nil }

func (c *ConnLocker) giveBack(e *entry) { c.sendLocked(e) }

// sendLocked queues e, and sees that a goroutine works on the queue. It lives
// until the queue is empty: a ConnLocker has no end of its own, and leaves nothing
// behind.
func (c *ConnLocker) sendLocked(e *entry) {
	c.queue = append(append(c.queue, c.later...), e)
	c.later = nil
	c.workLocked()
}

// sendLater tries again to give back what could not be given back before.
func (c *ConnLocker) sendLater() {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	if len(c.later) > 0 {
		c.queue = append(c.queue, c.later...)
		c.later = nil
		c.workLocked()
	}
}

func (c *ConnLocker) workLocked() {
	if !c.running {
		c.running = true
		go c.work()
	}
}

func (c *ConnLocker) work() {
	for {
		e, key, release := c.next()
		if e == nil {
			return
		}
		step := c.conn.Try
		if release {
			step = c.conn.Release
		}
		ok, err := step(key)
		missing := release && err == nil && !ok
		if missing || (err != nil && !survived(err)) || c.doubtful() {
			c.lose(e, err)
		} else {
			c.settle(e, ok, err)
		}
	}
}

// next takes the next step off the queue; nil if there is none.
func (c *ConnLocker) next() (e *entry, key dialect.Key, release bool) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(c.queue) > 0 {
		e, c.queue = c.queue[0], c.queue[1:]
		switch {
		case e.state == releasing:
			e.state = freeing
			return e, e.asked(), true
		case e.state == queued && len(e.asks) == 0: // all have given up
			e.state = idle
			t.tidyLocked(e)
		case e.state == queued:
			t.askingLocked(e, e.wantsShared())
			return e, e.asked(), false
		}
	}
	c.queue, c.running = nil, false
	return nil, dialect.Key{}, false
}

func (c *ConnLocker) doubtful() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return c.doubt
}

// stepLocked tells those who wait that a statement was answered.
func (c *ConnLocker) stepLocked() {
	close(c.stepped)
	c.stepped = make(chan struct{})
}

// settle gives e's callers the answer to its step.
func (c *ConnLocker) settle(e *entry, ok bool, err error) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.state == freeing && err == nil:
		t.freedLocked(e, nil)
	case e.state == freeing: // the session lives: its owner's transaction has failed, say
		t.settleReplyLocked(e, fromDialect(err))
		t.dismissLocked(e, fromDialect(err), everybody)
		e.state = releasing
		c.later = append(c.later, e)
		if len(e.asks) > 0 { // who waits is in a call: there may be no other
			time.AfterFunc(jitter(pollAway), c.sendLater)
		}
	case err != nil:
		t.refusedLocked(e, fromDialect(err))
	case ok:
		t.grantedLocked(e, holding{}, now())
	default:
		t.refusedLocked(e, ErrHeld)
	}
	c.stepLocked()
}

// lose ends every lock: the connection is gone, or not to be trusted.
func (c *ConnLocker) lose(e *entry, err error) {
	t := c.table
	t.mu.Lock()
	c.doubt = true // nothing on it counts any more
	if e.state == asking {
		if err = fromDialect(err); err == nil {
			err = ErrClosed
		}
		t.refusedLocked(e, err)
	}
	var locks []*Lock
	for e := range t.entries.all() {
		if e.state == held || e.state == releasing || e.state == freeing {
			locks = e.appendHolders(locks)
			t.freedLocked(e, ErrLost)
		}
	}
	c.stepLocked()
	t.mu.Unlock()
	for _, l := range locks {
		l.lose(endLost)
	}
	c.conn.Destroy() // may wait for a Rows or a Tx of the connection's owner
}
