package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// Locks that last as long as a transaction of the caller.

// A Tx is a transaction, such as *sql.Tx or *sqlx.Tx. A *sql.DB, *sqlx.DB or
// *sql.Conn is none, so the compiler rejects a lock that would end with its own
// statement.
//
// In another implementation Rollback must end the whole transaction, and all
// later calls must fail.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
	Rollback() error
}

// TryTx acquires key until tx ends, without waiting. Commit and rollback
// release it, and so does a rollback to an older savepoint. There is no unlock.
// The same transaction may acquire a key again. It excludes the
// advisory locks of a [Session] and of other lockers, and no lease.
//
// TryTx works on PostgreSQL with any driver, also behind transaction poolers.
// ctx reaches the driver, because the transaction is the caller's own. The
// errors are these:
//   - ErrHeld: another session holds key.
//   - ErrNotExclusive: the database is a standby, or is not PostgreSQL.
//   - ErrUnavailable: the connection is gone.
//   - An error that matches sql.ErrTxDone: tx has ended.
//   - An error of the server, which has an SQLState method.
//   - The error of ctx, and ErrLost with it if the loss of a lock has ended
//     ctx.
func TryTx(ctx context.Context, tx Tx, key Key) error {
	return lockTx(ctx, tx, key, keytable.Exclusive, 0)
}

// TryRTx is TryTx for one of several readers. While readers hold key, no caller
// gets it exclusively. A transaction that holds key exclusively gets it as a
// reader too, and its only reader gets it exclusively.
func TryRTx(ctx context.Context, tx Tx, key Key) error {
	return lockTx(ctx, tx, key, keytable.Shared, 0)
}

// LockTx is TryTx that waits for at most wait, rounded up to a millisecond, and
// 24 days at most. Then it returns ErrHeld, and tx stays usable: the wait is
// inside a savepoint named latchkey. The lock_timeout of the transaction is the
// same afterwards. A wait of zero or less is TryTx.
//
// PostgreSQL finds a deadlock with another session (SQLSTATE 40P01). It does
// not find one that leads through this process. So the holder of a Session's
// lock must not wait here for what only its own next step releases. If ctx
// carries a lock of a Session with [WithRegistry], lockwatch sees such a wait.
func LockTx(ctx context.Context, tx Tx, key Key, wait time.Duration) error {
	return lockTx(ctx, tx, key, keytable.Exclusive, wait)
}

// RLockTx is TryRTx that waits as LockTx does. Two readers that both wait for
// the exclusive lock wait for each other, and PostgreSQL ends one of them
// (40P01).
func RLockTx(ctx context.Context, tx Tx, key Key, wait time.Duration) error {
	return lockTx(ctx, tx, key, keytable.Shared, wait)
}

// lockTx tries first without a savepoint, which is enough for most calls.
func lockTx(ctx context.Context, tx Tx, key Key, mode keytable.Mode, wait time.Duration) error {
	id := key.db()
	if mode == keytable.Shared {
		id = id.Shared()
	}
	ok, err := postgres.TryXact(ctx, tx, id)
	if err == nil && !ok && wait > 0 {
		end := noteTxWait(ctx, tx, key, wait)
		ok, err = postgres.LockXact(ctx, tx, id, wait)
		end()
	}
	return inContext(ctx, txError(ok, err))
}

// inContext returns err, of a call on a transaction, with what has ended ctx.
// After that some drivers report only that the server cancelled the statement.
//
// If a context of the lock has ended the transaction and not the call, the
// error contains the loss of the lock that ctx carries.
func inContext(ctx context.Context, err error) error {
	var (
		ofContext = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		decided   = slices.ContainsFunc([]error{ErrLost, ErrReleased, ErrFenced, ErrHeld}, func(sentinel error) bool { return errors.Is(err, sentinel) })
	)
	switch {
	case err == nil, decided:
		return err
	case ctx.Err() != nil && ofContext:
		return callError(ctx, ctx.Err())
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", callError(ctx, ctx.Err()), err)
	case ofContext, errors.Is(err, sql.ErrTxDone):
		if lock, ok := FromContext(ctx); ok && errors.Is(lock.Err(), ErrLost) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}
