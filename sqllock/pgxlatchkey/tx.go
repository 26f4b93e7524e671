package pgxlatchkey

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/sqllock"
)

// endTimeout bounds Commit and Rollback. pgx closes the connection after it,
// which ends the transaction too.
const endTimeout = 5 * time.Second

// Tx returns tx as package sqllock takes transactions. It sends nothing.
//
// A pgx.Tx that Begin of another pgx.Tx has returned is a savepoint. A lock
// that is acquired there ends with its Rollback, and otherwise with the whole
// transaction. Do not use a savepoint for [sqllock.Fence]: its Rollback undoes
// the fence. If Fence rejects a savepoint, the connection is closed, so that
// the transaction around it writes nothing either.
//
// Like tx, the result is for one goroutine at a time.
func Tx(tx pgx.Tx) sqllock.Tx { return adapted{tx} }

// adapted is a pgx.Tx with the methods of *sql.Tx.
//
// Invariant: after a Rollback that returns, the server commits nothing of the
// transaction, and no later statement runs outside one.
type adapted struct{ tx pgx.Tx }

// ExecContext sends query. Without arguments pgx uses the simple protocol, which
// is right behind a transaction pooler, too.
func (a adapted) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := a.tx.Exec(ctx, query, args...)
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) && a.tx.Conn().IsClosed() {
		err = fmt.Errorf("%w: %w", driver.ErrBadConn, err)
	}
	return driver.RowsAffected(tag.RowsAffected()), done(err)
}

func (a adapted) Commit() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	return done(a.tx.Commit(ctx))
}

// Rollback ends the whole transaction, also if a is a savepoint.
//
// pgx does not tell which of the two it is. So a ROLLBACK goes first, which ends
// the transaction in the server. After it the Rollback of pgx succeeds for a
// transaction, and fails for a savepoint. The connection is closed then:
// otherwise the pgx.Tx around the savepoint would go on without a transaction,
// and each of its statements would be committed at once.
//
// Invariant: the connection is not looked at once it may be back in a pool. It
// never is after an error of Rollback, since pgx closes it then.
func (a adapted) Rollback() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if _, whole := a.tx.(*pgxpool.Tx); whole {
		return done(a.tx.Rollback(ctx))
	}
	if _, err := a.tx.Exec(ctx, "ROLLBACK"); errors.Is(err, pgx.ErrTxClosed) {
		return done(err)
	}
	err := a.tx.Rollback(ctx)
	if err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		_ = a.tx.Conn().Close(ctx)
	}
	return done(err)
}

// done makes err match sql.ErrTxDone if the transaction has ended before.
func done(err error) error {
	if errors.Is(err, pgx.ErrTxClosed) {
		return fmt.Errorf("%w: %w", sql.ErrTxDone, err)
	}
	return err
}
