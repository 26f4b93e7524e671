package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
)

const (
	// claimTimeout bounds how long a request waits for a connection. It also
	// bounds the wait for the transaction of another request with the same key,
	// if both have passed the lock.
	claimTimeout = 2 * time.Second

	// replyTimeout bounds how long the server may take for the statements of a
	// claim, in addition to claimTimeout.
	replyTimeout = 3 * time.Second

	// commitTimeout bounds the statements after the handler, whose client may
	// have left.
	commitTimeout = 5 * time.Second

	defaultMaxIdle = time.Minute
)

// A store is the table of [Schema] in the database of a pool.
type store struct {
	db        *sql.DB
	share     *poolShare
	kind      atomic.Pointer[database] // nil until the first request has asked
	txOptions sql.TxOptions
	maxIdle   time.Duration // of the handler's transaction
	abandoned atomic.Int32  // steps that were given up and have not ended
}

func newStore(db *sql.DB) *store {
	return &store{db: db, share: shareOf(db), maxIdle: defaultMaxIdle}
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
// Invariant: while the transaction is open, no other can insert that row.
// Another request that tries waits for its end. So of two requests without a
// lock only one commits.
type claim struct {
	stored *storedResponse // nil: the key is new, and tx is open
	asked  payload

	transaction
}

// errInFlight reports that another transaction has the key, and goes on.
var errInFlight = errors.New("idempotency: the key is in flight")

// claim finds the response to asked, or begins the transaction that makes it.
// ctx bounds claim, not the transaction. A transaction that the server ends
// because of a deadlock begins again. In InnoDB, requests that wait for one key
// deadlock when its holder rolls back.
func (s *store) claim(ctx context.Context, asked payload) (*claim, error) {
	began := time.Now()
	for {
		c, err := s.claimOnce(ctx, asked)
		switch code := serverCode(err); {
		case err == nil:
			return c, nil
		case code == deadlocked && ctx.Err() == nil && time.Since(began) < s.timeout(claimTimeout):
			continue
		case code == lockNotAvailable, code == mysqlLockTimeout:
			return nil, errInFlight
		}
		return nil, contextOr(ctx, storeError(err))
	}
}

// claimOnce is claim without another attempt after a deadlock.
func (s *store) claimOnce(ctx context.Context, asked payload) (_ *claim, err error) {
	c := &claim{asked: asked}
	if err := c.begin(ctx, s); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil || c.stored != nil {
			c.end()
		}
	}()
	return c, c.step(ctx, s.timeout(claimTimeout+replyTimeout), c.insert)
}

// insert inserts the key's row and begins the handler's part, or finds the
// stored response.
func (c *claim) insert() error {
	inserted, err := c.table.insert(c.ctx, c.tx, c.asked)
	if err == nil && !inserted {
		c.stored, err = c.find()
	}
	return err
}

// find returns the stored response.
func (c *claim) find() (*storedResponse, error) {
	a := &storedResponse{replayed: true}
	var (
		status sql.NullInt64
		header []byte
	)
	err := c.table.find(c.ctx, c.tx, c.asked).Scan(&a.fingerprint, &status, &header, &a.body)
	if err != nil { // sql.ErrNoRows if it was forgotten, or is younger than the transaction
		return nil, err
	}
	a.status = int(status.Int64)
	return a, a.decodeHeader(header)
}

// commit stores and commits a, with the effect, or without it if undo is set.
func (c *claim) commit(ctx context.Context, a *storedResponse, undo bool) error {
	defer c.end()
	return effectError(c.step(context.WithoutCancel(ctx), c.store.timeout(commitTimeout), func() error {
		if undo {
			if _, err := c.tx.ExecContext(c.ctx, undoSQL); err != nil {
				return err
			}
		}
		if err := c.table.fill(c.ctx, c.tx, c.asked, a); err != nil {
			return err
		}
		err := c.tx.Commit()
		c.committed = err == nil
		return err
	}))
}

// contextOr returns err, or the error of ctx if both are not nil: then the end
// of ctx is the reason.
func contextOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
