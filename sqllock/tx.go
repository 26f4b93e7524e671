package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A Tx is a transaction: *sql.Tx and *sqlx.Tx are. A *sql.DB, *sqlx.DB or
// *sql.Conn is not, so that a transaction's lock cannot be asked for where there
// is no transaction: it would be gone when its statement ends. One of your own
// must end the whole transaction with Rollback, and refuse all that follows.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// TryTx takes key until tx ends, or fails with ErrHeld if another session holds
// it. There is no unlock: commit and rollback release it, and so does a
// rollback to a savepoint that is older. The same transaction may take a key
// again. It excludes the locks of a [Session] and of every other locker here.
//
// It works behind transaction poolers and on any driver. It fails with
// ErrNotExclusive on a standby, with an error that matches sql.ErrTxDone if tx
// has ended, with ErrUnavailable if the connection is gone; an error of the
// server has an SQLState method. ctx reaches the driver: it is the caller's own
// transaction. If ctx has ended, the error is ctx's, and ErrLost too if the loss of a
// lock has ended it.
func TryTx(ctx context.Context, tx Tx, key Key) error {
	ok, err := postgres.TryXact(ctx, tx, key.id())
	return inContext(ctx, txError(ok, err))
}

// TryRTx is TryTx for one of several readers: while transactions, or readers of a [Session], have
// key so, nobody gets it alone. A transaction that has it alone gets it as a reader, too, and
// one that is the only reader gets it alone.
func TryRTx(ctx context.Context, tx Tx, key Key) error {
	ok, err := postgres.TryXact(ctx, tx, key.id().Shared())
	return inContext(ctx, txError(ok, err))
}

// LockTx is TryTx that waits: up to wait, rounded up to a millisecond and at the
// most 24 days, then it fails with ErrHeld and tx stays usable, since it waits inside a savepoint
// (named latchkey). The transaction's own lock_timeout is as before afterwards.
// A wait of zero or less is TryTx. A deadlock with another session is found by
// PostgreSQL (SQLSTATE 40P01), but not one that leads through this process: who
// holds a Session's lock must not wait here for what its own next step frees.
func LockTx(ctx context.Context, tx Tx, key Key, wait time.Duration) error {
	return lockTx(ctx, tx, key.id(), wait)
}

// RLockTx is TryRTx that waits as LockTx does. Two transactions that are readers of a key and both
// wait to have it alone wait for each other: PostgreSQL ends one (40P01).
func RLockTx(ctx context.Context, tx Tx, key Key, wait time.Duration) error {
	return lockTx(ctx, tx, key.id().Shared(), wait)
}

func lockTx(ctx context.Context, tx Tx, key dialect.Key, wait time.Duration) error {
	ok, err := postgres.TryXact(ctx, tx, key)
	if err == nil && !ok && wait > 0 {
		ok, err = postgres.LockXact(ctx, tx, key, wait)
	}
	return inContext(ctx, txError(ok, err))
}

func txError(ok bool, err error) error {
	var failure *dialect.Failure
	switch {
	case err == nil && ok:
		return nil
	case err == nil:
		return ErrHeld
	case errors.As(err, &failure) && (failure.Kind == dialect.Statement || failure.Kind == dialect.Closed):
		return fmt.Errorf("sqllock: %w", failure)
	case errors.As(err, &failure):
		return fromDialect(err)
	}
	return err // the caller's context has ended
}

// inContext returns err, of a call on a transaction, with what has ended ctx: of
// that some drivers report only that the server has cancelled the statement. The
// loss of the lock that ctx carries is part of the error too, if a context of
// the lock has ended the transaction and not the call.
func inContext(ctx context.Context, err error) error {
	var (
		ofContext = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		decided   = slices.ContainsFunc([]error{ErrLost, ErrReleased, ErrFenced, ErrHeld}, func(sentinel error) bool { return errors.Is(err, sentinel) })
	)
	switch {
	case err == nil, decided:
		return err
	case ctx.Err() != nil && ofContext:
		return ended(ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case ofContext, errors.Is(err, sql.ErrTxDone):
		if lock, ok := FromContext(ctx); ok && errors.Is(lock.Err(), ErrLost) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}
