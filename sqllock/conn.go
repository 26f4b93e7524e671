package sqllock

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Conn is a Locker on one connection that its caller owns: for code that has
// a *sql.Conn (of an *sqlx.Conn, its field Conn) and wants locks of its session.
//
// It proves nothing and sends nothing by itself: there is no heartbeat and no
// lease, and Lock.Err is nil until a call has shown that the connection is
// gone. Calls are serialized; those that come while a statement is in flight
// share the next one. As with a [Session], no context of a caller reaches the
// driver.
//
// Unlock every lock before closing the connection: (*sql.Conn).Close puts it
// back into the pool with its locks. A connection whose state is in doubt is
// destroyed. Use one Conn for each connection, never two: PostgreSQL would let
// one session take a key twice.
type Conn struct {
	session dialect.Session
	table   *table

	// protected by table.mu
	running  bool     // a goroutine sends
	releases []*entry // to give back
	tries    []*entry // to take

	batch dialect.Batch // of the goroutine that sends
}

// OnConn makes a Conn on conn. It panics if conn is nil.
func OnConn(conn *sql.Conn) *Conn {
	if conn == nil {
		panic("sqllock: OnConn needs a *sql.Conn that is not nil")
	}
	c := &Conn{session: dialect.OnConn(conn)}
	c.table = newTable(c)
	c.table.patience = patience
	return c
}

// TryLock takes key, or fails: ErrHeld, ErrClosed if the connection was closed,
// ErrNotExclusive if another server process answers than before, as behind a
// transaction pooler, ErrUnavailable within a second if there is no answer, or
// ctx's error.
func (c *Conn) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return c.table.acquire(ctx, key, false)
}

// Lock waits for key until ctx ends: first come, first served in this process.
// It tries again from time to time, so that the connection is free in between.
func (c *Conn) Lock(ctx context.Context, key Key) (*Lock, error) {
	return c.table.acquire(ctx, key, true)
}

// Conn is the source of its table.

func (c *Conn) ask(e *entry) {
	e.state = queued
	c.tries = append(c.tries, e)
	c.send()
}

// askAny is never called: a Conn takes one key at a time.
func (c *Conn) askAny(*ask) {}

func (c *Conn) away() error { return nil }

func (c *Conn) giveBack(e *entry) {
	c.releases = append(c.releases, e)
	c.send()
}

// send sees that a goroutine sends what is queued. It lives until the queue is
// empty: a Conn has no end of its own, and leaves nothing behind.
func (c *Conn) send() {
	if !c.running {
		c.running = true
		go c.drain()
	}
}

func (c *Conn) drain() {
	for {
		releases, tries, ok := c.take()
		if !ok {
			return
		}
		err := c.session.Exchange(&c.batch)
		holds := c.holdings(tries, releases, err)
		locks := c.settle(releases, tries, holds, err)
		for _, l := range locks {
			l.end(endLost, ErrLost)
		}
	}
}

// take makes the batch of what is queued.
func (c *Conn) take() (releases, tries []*entry, ok bool) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	c.batch.Reset()
	for _, e := range c.releases {
		if e.state == releasing {
			e.state = freeing
			releases = append(releases, e)
			c.batch.Release = append(c.batch.Release, e.key)
		}
	}
	for _, e := range c.tries {
		switch {
		case e.state != queued:
		case len(e.asks) == 0: // all have given up
			e.state = idle
			t.tidy(e)
		default:
			e.state = asking
			tries = append(tries, e)
			c.batch.Try = append(c.batch.Try, e.key)
		}
	}
	c.releases, c.tries = nil, nil
	c.running = len(releases)+len(tries) > 0
	return releases, tries, c.running
}

// holdings is which of the keys in flight the session holds now, by the answer
// or, after a statement that failed, by the database's account. It is nil if
// nothing is held any more, because the connection is gone.
func (c *Conn) holdings(tries, releases []*entry, err error) map[dialect.Key]bool {
	holds := make(map[dialect.Key]bool)
	switch {
	case err == nil && len(c.batch.NotHeld) == 0:
		for _, e := range tries {
			holds[e.key] = true
		}
		for _, key := range c.batch.Busy {
			delete(holds, key)
		}
		return holds
	case err != nil && survived(err):
		if keys, err := c.session.Held(); err == nil {
			for _, key := range keys {
				holds[key] = true
			}
			return holds
		}
	}
	c.session.Destroy()
	return nil
}

// settle gives everybody their answer and returns the locks that were lost, for
// the caller to end.
func (c *Conn) settle(releases, tries []*entry, holds map[dialect.Key]bool, err error) (lost []*Lock) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := ErrHeld
	if err != nil {
		answer = fromDialect(err)
	}
	if holds == nil {
		for _, e := range t.entries {
			if e.state == held || e.state == releasing || e.state == freeing {
				if e.lock != nil {
					lost = append(lost, e.lock)
				}
				t.freed(e, ErrLost)
			}
		}
		for _, e := range tries {
			t.refused(e, answer)
		}
		return lost
	}
	for _, e := range releases {
		if holds[e.key] {
			t.release(e)
		} else {
			t.freed(e, nil)
		}
	}
	for _, e := range tries {
		if holds[e.key] {
			t.granted(e, holding{})
		} else {
			t.refused(e, answer)
		}
	}
	return lost
}
