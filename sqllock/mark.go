package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// ErrPassed is the answer of [Advance] when the key's mark is there already, or beyond.
var ErrPassed = errors.New("sqllock: the mark has been passed already")

// Advance moves key's mark up to "to" in tx, or fails with ErrPassed if it is there already or beyond: what
// outlives a lock, so that who gets the lock later sees how far the work has come. A key that has no mark yet
// takes any. Marks are whatever rises: the time of a scheduled job's tick in milliseconds, an offset in a
// stream, a version.
//
// Of several transactions that bring a key to one mark, exactly one commits, with or without a lock: the others
// wait for its end, in one row of the table of [MarkSchema]. What that promises for the work the mark
// stands for depends on when tx commits:
//   - before the work: it is done at most once;
//   - with the work's effect, which is in tx as well: exactly once;
//   - after the work: at least once, by several if there is no lock around it.
//
// If ctx has ended, the error is ctx's. If the loss of a lock has ended ctx, or the
// transaction of the lock that ctx carries, the error matches ErrLost too.
//
// A key's mark has nothing to do with whether the key is locked: lock and mark may share one. The error of the
// server has an SQLState method: a serialization failure (40001, 40P01) is one of the transaction, which may be
// tried again. If the connection ends in the Commit, it is not known whether the mark has moved: to ask again,
// in another transaction, is safe, and ErrPassed may then be the echo of one's own.
//
// As with [Fence], the transaction is rolled back after any error: its Commit writes nothing, even if the error
// is ignored. Close rows before: while some of tx are open, Advance fails, and its rollback waits until they
// have been read. Call it outside any savepoint: a rollback to an older one takes the mark back. A transaction
// may advance several keys, in one order everywhere: else two of them may deadlock. On MySQL and MariaDB return
// on the first error of the transaction, and use no DDL in it: a deadlock (1213) and DDL end it there, and what
// is sent on the same tx after that is committed at once, without the mark.
//
// It is one statement without arguments, which works behind transaction poolers and with any driver; on MySQL
// and MariaDB it takes two round trips. On SQLite it locks the whole file until tx ends: see [SQLite].
//
// [Mark] tells how far a key has come.
func Advance(ctx context.Context, tx Tx, key Key, to int64) error {
	err := inContext(ctx, advance(ctx, tx, key, to))
	if err != nil {
		_ = tx.Rollback()
	}
	return err
}

func advance(ctx context.Context, tx Tx, key Key, to int64) error {
	moved, err := usertx.Mark(ctx, tx, key.id(), to)
	if err == nil && !moved {
		return ErrPassed
	}
	return markError(err)
}

// A Querier is whom [Mark] asks: a *sql.DB, *sql.Conn or *sql.Tx, or one of sqlx.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Mark is how far key has come by those [Advance] calls that are committed, and by its own if db is a
// transaction; ok is false, and at 0, if the key has no mark yet. It is where a stream goes on, or a look
// before a lock is taken for a mark that is there already.
//
// It takes no lock and waits for none: the mark may have moved when it returns, so what is up to Advance stays
// up to it. Its errors are those of Advance, and never ErrPassed; ErrUnavailable if the database is away, or ctx's
// error if that has ended. It is a query without arguments, for which pgx behind a transaction pooler wants
// default_query_exec_mode=exec in the DSN; Advance does not.
func Mark(ctx context.Context, db Querier, key Key) (at int64, ok bool, err error) {
	at, ok, err = usertx.MarkOf(ctx, db, key.id())
	return at, ok, inContext(ctx, markError(err))
}

// markError says what to do about a table that is missing, or that the role may not use.
func markError(err error) error {
	switch errcode.SQLState(err) {
	case "42S02": // MySQL's
		return fmt.Errorf("sqllock: there is no table latchkey_marks in the database: create it with MarkSchema(MySQL): %w", err)
	case "42P01":
		return fmt.Errorf("sqllock: there is no table latchkey_marks in the search_path:"+
			" create it with MarkSchema(PostgreSQL), or, if it is in another schema, add that to the search_path: %w", err)
	case "42501":
		return fmt.Errorf("sqllock: the role may not use the table latchkey_marks: grant it INSERT, SELECT and UPDATE: %w", err)
	}
	return txError(true, err)
}
