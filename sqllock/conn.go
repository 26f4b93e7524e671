package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
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
	home
	conn  *postgres.Conn
	timed *session.Table

	owner   keytable.Owner
	working atomic.Bool // a goroutine sends
	pending atomic.Bool // it must look again for something to send
	later   atomic.Bool // it is about to look again, after a pause
	doubt   atomic.Bool // a call ended without a response: the connection is destroyed
}

// OnConn returns a ConnLocker on conn. It panics if conn is nil.
func OnConn(conn *sql.Conn) *ConnLocker {
	if conn == nil {
		panic("sqllock: OnConn needs a *sql.Conn that is not nil")
	}
	c := &ConnLocker{conn: postgres.OnConn(conn)}
	c.timed = session.NewTable(keytable.Config{
		Wake: c.work, NewHold: newHold, HandOver: session.Fairness, YieldFor: session.YieldFor,
	}, bound.Of(session.AnswerTimeout), c.late)
	c.table = c.timed.Table
	return c
}

// late is the error of a call that has had no response for too long. From then
// on the connection is in doubt, if a statement is under way.
func (c *ConnLocker) late() error {
	c.doubt.Store(c.doubt.Load() || c.working.Load())
	return session.ErrNoAnswer
}

// TryLock acquires key without waiting. It returns ErrHeld, ErrCapacity,
// ErrConfig, the error of ctx, or this:
//   - ErrClosed: the connection was closed.
//   - ErrNotExclusive: another server process responds than before, or the
//     database is not PostgreSQL.
//   - ErrUnavailable: no response within a second, or a failed transaction.
func (c *ConnLocker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, keytable.Want{})
}

// Lock waits for key until ctx ends. In this process the first to come is the
// first to be served. Lock tries from time to time, and leaves the connection
// free in between.
func (c *ConnLocker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, keytable.Want{Waits: true})
}

// TryRLock acquires key for one of several readers, like [Session.TryRLock].
// Its errors are those of TryLock.
func (c *ConnLocker) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, keytable.Want{Mode: keytable.Shared})
}

// RLock is TryRLock that waits until ctx ends.
func (c *ConnLocker) RLock(ctx context.Context, key Key) (*Lock, error) {
	return c.acquireQuietly(ctx, key, keytable.Want{Mode: keytable.Shared, Waits: true})
}

// acquireQuietly acquires key. When it returns, no statement of this call comes
// between those of the owner. If one is under way when ctx ends, another call
// waits for it, and gives back what it brings.
func (c *ConnLocker) acquireQuietly(ctx context.Context, key Key, w keytable.Want) (*Lock, error) {
	c.work() // to release what could not be released before
	lock, err := c.acquire(ctx, w, key)
	if err != nil && ctx.Err() != nil && c.table.IsOrphaned(key.id()) {
		orphan, _ := c.acquire(context.Background(), keytable.Want{Mode: w.Mode}, key)
		_ = orphan.Unlock()
	}
	return lock, err
}

// work sees that a goroutine sends what is queued, until there is nothing left.
func (c *ConnLocker) work() {
	c.pending.Store(true)
	if !c.working.CompareAndSwap(false, true) {
		return
	}
	go func() {
		for {
			for c.pending.Swap(false) {
				var b keytable.Batch
				for c.step(&b) {
				}
			}
			c.working.Store(false)
			if !c.pending.Load() || !c.working.CompareAndSwap(false, true) {
				return
			}
		}
	}()
}

// workLater has what has failed tried again after a pause: there may be no other
// call. There is one such pause at a time, however many calls come meanwhile.
func (c *ConnLocker) workLater() {
	if c.later.CompareAndSwap(false, true) {
		time.AfterFunc(keytable.AwayFor, func() {
			c.later.Store(false)
			c.work()
		})
	}
}

// oneKey has a batch carry one key.
var oneKey = keytable.Limits{Keys: 1, Grants: math.MaxInt, Most: math.MaxInt}

// step sends one statement, if one is queued, and reports that. After the loss of
// the connection nothing is.
func (c *ConnLocker) step(b *keytable.Batch) bool {
	if !c.table.Prepare(&c.owner, oneKey, b) {
		c.timed.Look() // a poll may have found that its keys rest
		return false
	}
	var (
		ok  bool
		err error
	)
	release := len(b.Releases) > 0
	if release {
		k := b.Releases[0]
		ok, err = c.conn.Release(session.DBKey(k.ID(), k.Mode()))
	} else {
		k := b.Looks[0].Keys[0]
		ok, err = c.conn.Try(session.DBKey(k.ID(), k.Mode()))
	}
	lost := err != nil && !dialect.Survives(err) || release && err == nil && !ok || c.doubt.Load()
	switch {
	case lost:
		c.lose(b, err)
	case err != nil: // the session lives: its owner's transaction has failed, say
		c.table.Reconcile(&c.owner, b, session.Now(), func(keytable.ID, keytable.Mode) bool { return release }, session.FromDialect(err))
		c.table.Expire(session.Now(), func() error { return session.FromDialect(err) }) // the session would reject the others, too
		c.workLater()
	default:
		if ok && !release {
			b.Looks[0].Won = append(b.Looks[0].Won, 0)
		}
		c.table.Complete(&c.owner, b, session.Now())
	}
	c.timed.Look()
	return err == nil // what has failed is tried again later
}

// lose ends every lock, because the connection is gone or in doubt. No later
// call gets one.
func (c *ConnLocker) lose(b *keytable.Batch, err error) {
	closed := ErrClosed
	if err = session.FromDialect(err); err == nil {
		err = closed
	} else if errors.Is(err, ErrClosed) {
		closed = err
	}
	ends := c.table.Lose(&c.owner, b, err)
	ends = append(ends, c.table.Close(closed)...)
	ends.Announce()
	c.conn.Destroy() // may wait for a Rows or a Tx of the connection's owner
}
