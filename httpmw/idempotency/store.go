package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

const (
	// claimTimeout bounds how long a request waits for a connection. It also
	// bounds the wait for the transaction of another request with the same key,
	// if both have passed the lock.
	claimTimeout = 2 * time.Second

	// replyTimeout bounds how long the server may take for the statements of a
	// claim, in addition to its waits.
	replyTimeout = 3 * time.Second

	// commitTimeout bounds the statements after the handler, whose client may
	// have left.
	commitTimeout = 5 * time.Second

	defaultMaxIdle = time.Minute
)

// A store is the table of [Schema] in the database of a pool.
type store struct {
	db        *sql.DB
	known     *atomic.Pointer[knownPool] // of db; nil until a request has asked
	txOptions sql.TxOptions
	maxIdle   time.Duration // of the handler's transaction
}

func newStore(db *sql.DB) *store {
	return &store{db: db, known: knownOf(db), maxIdle: defaultMaxIdle}
}

// timeout returns d, one of the bounds above, or more in tests on a busy
// machine. The bounds of a store whose maxIdle a test has made short stay short
// too.
func (s *store) timeout(d time.Duration) time.Duration {
	if s.maxIdle < defaultMaxIdle {
		return d
	}
	return bound.Of(d)
}

// A claim is what a request has found under its key. That is either a stored
// response, or nothing. In the second case it is the open transaction in which
// the key's row was inserted.
//
// The transaction has a connection of its own. Its steps end in time even if
// the server is frozen or the network silent: some drivers ignore their context
// then, and Commit and Rollback have none.
//
// Invariant: while the transaction is open, no other can insert that row.
// Another request that tries waits for its end. So of two requests without a
// lock only one commits.
//
// Invariant: a connection returns to the pool only when its transaction has
// certainly ended and its settings are as before. A connection in doubt is
// destroyed. The place in the pool is given back after that.
type claim struct {
	store  *store
	pool   *knownPool
	asked  payload
	stored *storedResponse // nil: the key is new, and tx is open

	conn      *sql.Conn
	table     table
	tx        *sql.Tx
	ctx       context.Context // of tx and the statements of this package in it
	cancel    context.CancelFunc
	committed bool
	over      bool // ended, or given up: nothing is left to do for the owner
}

// claim finds the response to asked, or begins the transaction that makes it.
// ctx bounds claim, not the transaction.
//
// In InnoDB, requests that wait for one key deadlock when its holder rolls back.
func (s *store) claim(ctx context.Context, asked payload) (*claim, error) {
	c, err := s.begin(ctx, asked)
	switch errcode.Of(err) {
	case lockNotAvailable, mysqlLockTimeout, mysqlDeadlock:
		return nil, errInFlight
	}
	if err != nil {
		return nil, contextOr(ctx, storeError(err))
	}
	return c, nil
}

func (s *store) begin(ctx context.Context, asked payload) (*claim, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return nil, err
	}
	bounded, stop := context.WithTimeout(ctx, s.timeout(claimTimeout))
	defer stop()
	if err := pool.take(bounded); err != nil {
		return nil, err
	}
	c := &claim{store: s, pool: pool, asked: asked}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	err = c.step(ctx, s.timeout(claimTimeout+replyTimeout), func() error { return c.begin(bounded) })
	if err != nil || c.stored != nil {
		c.end()
	}
	return c, err
}

// begin takes a connection, for which it waits as long as ctx lasts, and begins
// tx. In it, begin inserts the key's row, or finds the stored response.
func (c *claim) begin(ctx context.Context) (err error) {
	if c.conn, err = dbconn.Live(ctx, c.store.db); err != nil {
		return noTx(err)
	}
	table := c.pool.kind.table()
	if err := table.enter(c.ctx, c.conn, c.store.maxIdle, c.store.timeout(claimTimeout)); err != nil {
		return noTx(err)
	}
	c.table = table
	if c.tx, err = c.conn.BeginTx(c.ctx, &c.store.txOptions); err == nil {
		err = c.insert()
	}
	if err == nil || errcode.Of(err) != "" || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	defer c.destroy()
	if c.tx != nil {
		_ = c.tx.Rollback() // before the question: database/sql hangs if the connection of an open transaction is gone
	}
	if isAlive(c.ctx, c.conn) {
		return mistakeOf(errDriver, err)
	}
	return err
}

// insert inserts the key's row and begins the handler's part, or finds the stored
// response.
func (c *claim) insert() error {
	inserted, err := c.table.insert(c.ctx, c.tx, c.asked)
	switch {
	case err != nil:
		return err
	case inserted:
		_, err = c.tx.ExecContext(c.ctx, effectSQL)
		return err
	}
	c.stored = &storedResponse{replayed: true}
	var (
		status sql.NullInt64
		header []byte
	)
	err = c.table.find(c.ctx, c.tx, c.asked).Scan(&c.stored.fingerprint, &status, &header, &c.stored.body)
	if err != nil { // sql.ErrNoRows if it was forgotten, or is younger than the transaction
		return err
	}
	c.stored.status = int(status.Int64)
	return c.stored.decodeHeader(header)
}

// commit stores and commits a, with the effect, or without it if undo is set.
func (c *claim) commit(ctx context.Context, a *storedResponse, undo bool) error {
	defer c.end()
	rowsLeft := dbconn.HasOpenRows(c.tx)
	err := c.step(context.WithoutCancel(ctx), c.store.timeout(commitTimeout), func() error {
		if undo {
			if _, err := c.tx.ExecContext(c.ctx, undoSQL); err != nil {
				return err
			}
		}
		rows, err := c.table.fill(c.ctx, c.tx, c.asked, a)
		if err == nil && rows == 0 {
			err = ErrTxUnusable
		}
		if err == nil {
			err = c.tx.Commit()
			c.committed = err == nil
		}
		return err
	})
	if err != nil && rowsLeft {
		return errRowsLeft
	}
	return effectError(err)
}

// step calls do. It returns when do has returned, or with errNoReply when ctx
// ends or timeout has passed. After errNoReply c is given up: when do returns
// at last, the connection is destroyed.
func (c *claim) step(ctx context.Context, timeout time.Duration, do func() error) error {
	ctx, stop := context.WithTimeout(ctx, timeout)
	defer stop()
	err, inTime := dbconn.Call(ctx, do, func(error) {
		c.destroy()
		<-c.pool.places
	})
	if inTime {
		return err
	}
	c.over = true
	c.cancel()
	return errNoReply
}

// end rolls back what is not committed, and returns the connection to the pool.
// The response does not depend on it.
func (c *claim) end() {
	if c.over {
		return
	}
	if _ = c.step(context.Background(), c.store.timeout(commitTimeout), c.leave); c.over {
		return // given up
	}
	c.over = true
	c.cancel()
	<-c.pool.places
}

// leave returns the connection to the pool. It destroys the connection if the
// end of the transaction, or a setting, is in doubt.
func (c *claim) leave() error {
	known, clean := c.tx != nil, c.committed
	if known && !clean {
		err := c.tx.Rollback()
		clean = err == nil
		known = clean || errors.Is(err, sql.ErrTxDone) || errcode.Of(err) != ""
	}
	if known && c.table.leave(c.ctx, c.conn, clean) == nil {
		return c.conn.Close()
	}
	c.destroy()
	return nil
}

// destroy ends tx and closes its connection, which does not return to the pool.
func (c *claim) destroy() {
	if c.tx != nil {
		_ = c.tx.Rollback()
	}
	if c.conn != nil {
		dbconn.Destroy(c.conn, "")
	}
}

// contextOr returns err, or the error of ctx if both are not nil: then the end
// of ctx is the reason.
func contextOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
