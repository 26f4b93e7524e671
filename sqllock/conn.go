package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Conn is a Locker on one connection that its caller owns: for code that has
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
// because it did not answer a call in time, is destroyed with its locks. Use one
// Conn for each connection, never two: PostgreSQL would let one session take a
// key twice.
type Conn struct {
	conn  *dialect.Conn
	table *table

	// protected by table.mu
	queue []*entry      // to take or to give back
	idle  chan struct{} // closed when the goroutine that sends is done; nil: there is none
	doubt bool          // a call ended without an answer
}

// OnConn makes a Conn on conn. It panics if conn is nil.
func OnConn(conn *sql.Conn) *Conn {
	if conn == nil {
		panic("sqllock: OnConn needs a *sql.Conn that is not nil")
	}
	c := &Conn{conn: dialect.OnConn(conn)}
	c.table = newTable(c)
	c.table.patience = patience
	c.table.silence = c.mistrust
	return c
}

// TryLock takes key, or fails: ErrHeld, ErrClosed if the connection was closed,
// ErrNotExclusive if another server process answers than before, as behind a
// transaction pooler, ErrUnavailable within a second if there is no answer, or
// ctx's error.
func (c *Conn) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, false)
}

// Lock waits for key until ctx ends: first come, first served in this process.
// It tries again from time to time, so that the connection is free in between.
func (c *Conn) Lock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquire(ctx, key, true)
}

func (c *Conn) acquire(ctx context.Context, key Key, waits bool) (*Lock, error) {
	lock, err := c.table.acquire(ctx, key, waits)
	if err != nil && !errors.Is(err, ErrHeld) {
		c.settleDown()
	}
	return lock, err
}

// settleDown waits until nothing is sent any more, so that no statement of a
// call that was given up comes between the owner's.
func (c *Conn) settleDown() {
	c.table.mu.Lock()
	idle := c.idle
	c.table.mu.Unlock()
	if idle == nil {
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		c.mistrust()
	}
}

// mistrust has the connection destroyed if a statement is still under way: its
// answer, and what would have to follow it, would come behind its owner's back.
func (c *Conn) mistrust() {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.doubt = c.doubt || c.idle != nil
}

// Conn is the source of its table.

func (c *Conn) ask(e *entry) {
	e.state = queued
	c.send(e)
}

// askAny is never called: a Conn takes one key at a time.
func (c *Conn) askAny(*ask) {}

func (c *Conn) away() error { return nil }

func (c *Conn) giveBack(e *entry) { c.send(e) }

// send queues e, and sees that a goroutine works on the queue. It lives until
// the queue is empty: a Conn has no end of its own, and leaves nothing behind.
func (c *Conn) send(e *entry) {
	c.queue = append(c.queue, e)
	if c.idle == nil {
		c.idle = make(chan struct{})
		go c.work()
	}
}

func (c *Conn) work() {
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
		if (err != nil && !survived(err)) || (release && !ok) || c.doubtful() {
			c.lose(e, err)
		} else {
			c.settle(e, ok, err)
		}
	}
}

// next takes the next step off the queue; nil if there is none.
func (c *Conn) next() (e *entry, key dialect.Key, release bool) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(c.queue) > 0 {
		e, c.queue = c.queue[0], c.queue[1:]
		switch {
		case e.state == releasing:
			e.state = freeing
			return e, e.key, true
		case e.state == queued && len(e.asks) == 0: // all have given up
			e.state = idle
			t.tidyLocked(e)
		case e.state == queued:
			e.state = asking
			return e, e.key, false
		}
	}
	close(c.idle)
	c.queue, c.idle = nil, nil
	return nil, dialect.Key{}, false
}

func (c *Conn) doubtful() bool {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return c.doubt
}

// settle gives e's callers the answer to its step.
func (c *Conn) settle(e *entry, ok bool, err error) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.state == freeing && err == nil:
		t.freedLocked(e, nil)
	case e.state == freeing: // it could not be given back, and the session lives
		t.settleReplyLocked(e, fromDialect(err))
		t.releaseLocked(e)
	case err != nil:
		t.refusedLocked(e, fromDialect(err))
	case ok:
		t.grantedLocked(e, holding{})
	default:
		t.refusedLocked(e, ErrHeld)
	}
}

// lose ends every lock: the connection is gone, or not to be trusted.
func (c *Conn) lose(e *entry, err error) {
	c.conn.Destroy()
	t := c.table
	t.mu.Lock()
	if e.state == asking {
		if err == nil {
			err = ErrClosed
		} else {
			err = fromDialect(err)
		}
		t.refusedLocked(e, err)
	}
	var locks []*Lock
	for _, e := range t.entries {
		if e.state == held || e.state == releasing || e.state == freeing {
			if e.lock != nil {
				locks = append(locks, e.lock)
			}
			t.freedLocked(e, ErrLost)
		}
	}
	t.mu.Unlock()
	for _, l := range locks {
		l.lose(ErrLost)
	}
}
