package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A ConnLocker is a Locker on one connection that its caller owns. It is for
// code that has a *sql.Conn and wants locks of its session. (An *sqlx.Conn has
// it in its field Conn.) [OnConn] makes a ConnLocker. The methods are safe for
// concurrent use.
//
// It has no heartbeat and no lease. Lock.Err returns nil until a call has shown
// that the connection is gone. Each lock and unlock is a statement between
// those of the owner, so close a *sql.Rows of the connection before a call. No
// context of a caller reaches the driver.
//
// Unlock every lock before you close the connection: (*sql.Conn).Close puts it
// back into the pool with its locks. If a call ends without a response, the
// connection is destroyed with all its locks. While the server is frozen, Close
// of the connection waits for the statement under way.
//
// Make one ConnLocker for each connection, since PostgreSQL lets one session
// take a key twice. For the same reason the connection must be a direct one, or
// through a pool in session mode. Behind a transaction pooler two connections
// may share a session and both get a key: no proof is made here.
type ConnLocker struct {
	conn  *postgres.Conn
	table *keyTable

	// protected by table.mu
	queue   []*keyState    // to take or to give back
	distant []*distantWait // to look whether they are in the same database
	looking *distantWait   // for which a statement may be under way; nil: none
	later   []*keyState    // what could not be given back: with the next call
	running bool           // a goroutine sends
	stepped chan struct{}  // closed, and made anew, when a statement was answered: stepLocked
	doubt   bool           // a call ended without an answer
}

// OnConn returns a ConnLocker on conn. It panics if conn is nil.
func OnConn(conn *sql.Conn) *ConnLocker {
	if conn == nil {
		panic("sqllock: OnConn needs a *sql.Conn that is not nil")
	}
	c := &ConnLocker{conn: postgres.OnConn(conn), stepped: make(chan struct{})}
	c.table = newKeyTable(c)
	c.table.timeout = bound.Of(answerTimeout)
	c.table.onTimeout = c.mistrustLocked
	return c
}

// TryLock acquires key without waiting. It returns ErrHeld, the error of ctx,
// or this:
//   - ErrClosed: the connection was closed.
//   - ErrNotExclusive: another server process responds than before.
//   - ErrUnavailable: there is no response within a second.
func (c *ConnLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, want{})
}

// Lock waits for key until ctx ends. In this process the first to come is the
// first to be served. Lock tries from time to time, and leaves the connection
// free in between.
func (c *ConnLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, want{waits: true})
}

// TryRLock acquires key for one of several readers, like [Session.TryRLock].
// Its errors are those of TryLock.
func (c *ConnLocker) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, want{mode: shared})
}

// RLock is TryRLock that waits until ctx ends.
func (c *ConnLocker) RLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, want{mode: shared, waits: true})
}

// mistrustLocked has the connection destroyed if a statement is still under
// way.
func (c *ConnLocker) mistrustLocked() { c.doubt = c.doubt || c.running }

// A ConnLocker is the source of its table. It keeps nothing for a key.
func (c *ConnLocker) newKey() *keyState { return &keyState{own: plainKey{}} }
func (c *ConnLocker) take(k *keyState) {
	k.phase = queued
	c.sendLocked(k)
}

// takeGroup is never called: a ConnLocker takes one key at a time.
func (c *ConnLocker) takeGroup(*request)   {}
func (c *ConnLocker) away(*keyState) error { return nil }
func (c *ConnLocker) giveBack(k *keyState) { c.sendLocked(k) }

// sendLocked queues keys, behind what could not be released until now. A
// goroutine works on the queue until it is empty.
func (c *ConnLocker) sendLocked(keys ...*keyState) {
	c.queue = append(append(c.queue, c.later...), keys...)
	c.later = nil
	if len(c.queue)+len(c.distant) > 0 && !c.running {
		c.running = true
		go c.work()
	}
}

// sendLater tries again to release what could not be released before.
func (c *ConnLocker) sendLater() {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	c.sendLocked()
}

func (c *ConnLocker) work() {
	for {
		k, key, release := c.next()
		if k == nil {
			if !c.lookForSession() {
				return
			}
			continue
		}
		step := c.conn.Try
		if release {
			step = c.conn.Release
		}
		ok, err := step(key)
		missing := release && err == nil && !ok
		c.table.mu.Lock()
		doubt := c.doubt
		c.table.mu.Unlock()
		if missing || (err != nil && !dialect.Survives(err)) || doubt {
			c.dropConnection(k, err)
		} else {
			c.completeStep(k, ok, err)
		}
	}
}

// next takes the next key off the queue, and says what to do; nil if there is
// none.
func (c *ConnLocker) next() (k *keyState, key dialect.Key, release bool) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(c.queue) > 0 {
		k, c.queue = c.queue[0], c.queue[1:]
		switch {
		case k.phase == releasing:
			k.phase = freeing
			return k, k.dbKey(), true
		case k.phase == queued && len(k.waiters) == 0: // all have given up
			k.phase = idle
			t.forgetLocked(k)
		case k.phase == queued:
			t.requestedLocked(k, k.wantedMode())
			return k, k.dbKey(), false
		}
	}
	c.queue = nil
	return nil, dialect.Key{}, false
}

func (c *ConnLocker) stepLocked() {
	close(c.stepped)
	c.stepped = make(chan struct{})
}

// completeStep completes the statement for k.
func (c *ConnLocker) completeStep(k *keyState, ok bool, err error) {
	t := c.table
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case k.phase == freeing && err == nil:
		t.freedLocked(k, nil)
	case k.phase == freeing: // the session lives: its owner's transaction has failed, say
		t.replyLocked(k, fromDialect(err))
		t.denyTriesLocked(k, fromDialect(err))
		k.phase = releasing
		c.later = append(c.later, k)
		if len(k.waiters) > 0 { // the waiters make no other call that would try again
			time.AfterFunc(jitter(pollAway), c.sendLater)
		}
	case err != nil:
		t.deniedLocked(k, fromDialect(err))
	case ok:
		t.grantedLocked(k, now())
	default:
		t.deniedLocked(k, ErrHeld)
	}
	c.stepLocked()
}

// dropConnection ends every lock, because the connection is gone or in doubt.
func (c *ConnLocker) dropConnection(k *keyState, err error) {
	t := c.table
	t.mu.Lock()
	c.doubt = true // nothing on it counts any more
	if k.phase == requested {
		if err = fromDialect(err); err == nil {
			err = ErrClosed
		}
		t.deniedLocked(k, err)
	}
	var locks []*Lock
	for k := range t.keys.all() {
		if k.phase == held || k.phase == releasing || k.phase == freeing {
			locks = k.appendHolders(locks)
			t.freedLocked(k, ErrLost)
		}
	}
	c.stepLocked()
	ended := endAllLocked(locks, endLost)
	t.mu.Unlock()
	ended.announce()
	c.conn.Destroy() // may wait for a Rows or a Tx of the connection's owner
}
