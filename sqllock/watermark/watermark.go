package watermark

import (
	"context"
	"database/sql"
	"errors"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ErrPassed is the error of [Advance] for a key whose watermark is as high
// already, or higher.
var ErrPassed = errors.New("watermark: the mark has been passed already")

// Advance raises the watermark of key to the given number, as part of tx. It
// returns ErrPassed if the watermark is as high already, or higher. A key
// without a watermark accepts any number.
//
// Of several transactions that raise a key to one number, exactly one commits,
// with or without a lock. The others wait until it ends. What this promises for
// the work behind the number depends on when tx commits:
//   - Before the work: the work is done at most once.
//   - Together with the effect of the work, in tx: exactly once.
//   - After the work: at least once, and more often if there is no lock around
//     it.
//
// The other errors are these:
//   - ctx's error, and ErrLost with it if the loss of a lock has ended ctx, or
//     has ended the transaction.
//   - ErrUnavailable: the connection has ended. If it ends in the Commit, the
//     watermark may have risen or not. The caller may call Advance again, in
//     another transaction. ErrPassed may then be the effect of its own first
//     attempt.
//   - An error of the server, which has an SQLState method. A serialization
//     failure (40001, 40P01) is one of the transaction, which may be tried
//     again.
//
// After any error the transaction is rolled back, as with [sqllock.Fence]. Its
// Commit writes nothing, even if the caller ignores the error.
//
// Four rules hold for the transaction:
//   - Close its rows before. While some are open Advance fails, and its
//     rollback waits until they have been read.
//   - Call Advance outside any savepoint: a rollback to an older one undoes it.
//   - To advance several keys, use one order everywhere, or two transactions
//     may deadlock.
//   - On MySQL and MariaDB return on its first error, and use no DDL in it. A
//     deadlock (1213) and DDL end the transaction there. Later statements on
//     the same tx are then committed at once, without the watermark.
//
// Advance is one statement without arguments, so it works behind transaction
// poolers and with any driver. It takes two round trips on MySQL and MariaDB.
// On SQLite it locks the whole file until tx ends: see [sqllock.SQLite].
//
// Watermarks and locks are independent: both may use the same key. [Get] reads
// a watermark.
func Advance(ctx context.Context, tx sqllock.Tx, key sqllock.Key, to int64) error {
	err := inContext(ctx, advance(ctx, tx, key, to))
	if err != nil {
		_ = tx.Rollback()
	}
	return err
}

func advance(ctx context.Context, tx sqllock.Tx, key sqllock.Key, to int64) error {
	moved, err := usertx.Advance(ctx, tx, keyOf(key), to)
	if err == nil && !moved {
		return ErrPassed
	}
	return callerError(err)
}

// A Querier runs the query of [Get]: a *sql.DB, *sql.Conn or *sql.Tx, or the
// same type of sqlx.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Get returns the watermark of key, as far as [Advance] calls have been
// committed. If db is a transaction, its own calls count too. If the key has no
// watermark yet, ok is false and at is 0.
//
// A reader of a stream starts where Get says. A job looks with Get before it
// takes a lock for work that is done already. Get takes no lock and waits for
// none. The watermark may have risen when Get returns, so only Advance decides.
//
// Its errors are those of Advance without ErrPassed, and ErrUnavailable if the
// database is away. Get is a query without arguments. Behind a transaction
// pooler pgx needs default_query_exec_mode=exec in the DSN for it.
func Get(ctx context.Context, db Querier, key sqllock.Key) (at int64, ok bool, err error) {
	at, ok, err = usertx.Watermark(ctx, db, keyOf(key))
	return at, ok, inContext(ctx, callerError(err))
}

// keyOf returns the key as the database sees it.
func keyOf(key sqllock.Key) dialect.Key {
	space := dialect.Bigint
	if _, _, pair := key.Pair(); pair {
		space = dialect.TwoInts
	}
	return dialect.Key{Space: space, ID: key.Int64()}
}
