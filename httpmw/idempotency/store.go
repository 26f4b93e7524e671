package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"
)

const (
	// claimTimeout bounds how long a request waits for a connection; and how long for
	// the transaction of another request with its key, if both have passed the lock.
	claimTimeout = 2 * time.Second

	// replyTimeout bounds how long the server may take for statements of ours, in
	// addition to that.
	replyTimeout = 3 * time.Second

	// commitTimeout bounds what is left to do after the handler, whose client may have gone.
	commitTimeout = 5 * time.Second
)

// An store is the table of [Schema] in the database of a pool.
type store struct {
	db        *sql.DB
	share     *poolShare
	kind      atomic.Pointer[database] // nil: not asked for yet
	txOptions sql.TxOptions
	maxIdle   time.Duration // of the handler's transaction
	abandoned atomic.Int32  // steps that were given up and are not over
}

func newStore(db *sql.DB) *store {
	return &store{db: db, share: shareOf(db), maxIdle: time.Minute}
}

// A claim is what was found under a key: a stored answer, or nothing, and then it
// is the transaction in which the key's row was inserted.
//
// Invariant: as long as the transaction is open, no other can insert that row; one
// that tries waits for its end. So of two requests without a lock only one commits.
type claim struct {
	stored *storedResponse // nil: the key is new, and tx open
	asked  payload

	transaction
}

// errInFlight: another transaction has the key, and goes on.
var errInFlight = errors.New("idempotency: the key is in flight")

// claim finds the answer to asked, or begins the transaction that makes it. ctx bounds
// claim, not the transaction. A transaction that the server ends for a deadlock begins
// again: requests that wait for one key of InnoDB meet in one when its holder rolls back.
func (s *store) claim(ctx context.Context, asked payload) (*claim, error) {
	began := time.Now()
	for {
		c, err := s.claimOnce(ctx, asked)
		switch code := serverCode(err); {
		case err == nil:
			return c, nil
		case code == deadlocked && ctx.Err() == nil && time.Since(began) < claimTimeout:
			continue
		case code == lockNotAvailable, code == mysqlLockTimeout:
			return nil, errInFlight
		}
		return nil, contextOr(ctx, storeError(err))
	}
}

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
	return c, c.step(ctx, claimTimeout+replyTimeout, c.insert)
}

// insert inserts the key's row and begins the handler's part, or finds the answer.
func (c *claim) insert() error {
	inserted, err := c.table.insert(c.ctx, c.tx, c.asked)
	if err == nil && !inserted {
		c.stored, err = c.find()
	}
	return err
}

// find reads the answer that is stored.
func (c *claim) find() (*storedResponse, error) {
	a := &storedResponse{replayed: true}
	var (
		status sql.NullInt64
		header []byte
	)
	err := c.table.find(c.ctx, c.tx, c.asked).Scan(&a.fingerprint, &status, &header, &a.body)
	if err != nil { // sql.ErrNoRows, if it was forgotten, or is younger than the transaction
		return nil, err
	}
	a.status = int(status.Int64)
	return a, a.decodeHeader(header)
}

// commit stores a and commits it, with the effect or, if that is to be undone,
// without.
func (c *claim) commit(ctx context.Context, a *storedResponse, undo bool) error {
	defer c.end()
	return effectError(c.step(context.WithoutCancel(ctx), commitTimeout, func() error {
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

// contextOr returns err, or the error of ctx if both have failed: the end of ctx is
// the reason.
func contextOr(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
