package idempotency

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// forgetBatch is the largest number of rows that one transaction of Forget
// deletes.
const forgetBatch = 1000

// Forget deletes the responses that are older than olderThan by the server's
// clock. It returns how many it has deleted, also with an error.
//
// A key that is forgotten is new, so olderThan must be longer than any client
// retries. A day is usual. Call Forget from time to time; several instances may
// call it at once. It deletes the responses of every Middleware on the table,
// at most a thousand rows in a transaction.
//
// Forget fails if olderThan is not positive, with the error of ctx, with
// [sqllock.ErrUnavailable], or with the error that a request would get.
func (m *Middleware) Forget(ctx context.Context, olderThan time.Duration) (deleted int64, err error) {
	if olderThan <= 0 {
		return 0, errors.New("idempotency: Forget needs a positive duration")
	}
	for {
		n, err := m.responses.forget(ctx, olderThan)
		deleted += n
		if err != nil || n < forgetBatch {
			return deleted, contextOr(ctx, storeError(err))
		}
	}
}

// forget deletes one batch, and returns the number of its rows.
func (s *store) forget(ctx context.Context, olderThan time.Duration) (int64, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return 0, err
	}
	tx, err := s.db.BeginTx(ctx, pool.kind.forgetOptions)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	n, err := affected(tx.ExecContext(ctx, fmt.Sprintf(pool.kind.forgetSQL, olderThan.Microseconds(), forgetBatch)))
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
