package usertx

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// Advance raises the watermark of key to "to", as part of tx, and keeps its row
// locked until tx ends.
//
// It reports false, and has changed nothing, if the watermark is there already or
// beyond. MySQL's statement has failed then, those of PostgreSQL and SQLite have
// not.
//
// A transaction does not say which database it is in. So Advance first sends the
// statement for PostgreSQL and SQLite. MySQL does not understand it, and comes to
// no harm.
func Advance(ctx context.Context, tx dialect.Execer, key dialect.Key, to int64) (bool, error) {
	result, err := tx.ExecContext(ctx, advanceStatement(key, to))
	if number, _, ok := errcode.MySQL(err); ok && number == errcode.MySQLParse {
		_, err = tx.ExecContext(ctx, mysqlAdvance(key, to))
		if number, _, _ := errcode.MySQL(err); number == errcode.MySQLOutOfRange {
			return false, nil
		}
		return err == nil, dialect.Fail(err)
	}
	if err != nil {
		return false, watermarkFailure(err)
	}
	n, err := result.RowsAffected()
	return n == 1, dialect.Fail(err)
}

// A Querier is the part of *sql.DB and *sql.Tx that asks for one row.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Watermark returns the committed watermark of key. ok is false if it has none.
// All databases understand the statement.
func Watermark(ctx context.Context, db Querier, key dialect.Key) (at int64, ok bool, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT mark FROM latchkey_watermarks WHERE key_space = %d AND key_id = %d", key.Space, key.ID)).
		Scan(&at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, watermarkFailure(err)
	}
	return at, true, nil
}

// watermarkFailure is dialect.Fail, and knows SQLite's error for a missing table.
func watermarkFailure(err error) error {
	if errcode.IsNoTable(err) {
		return &dialect.Failure{
			Kind: dialect.Statement,
			Reason: "there is no table latchkey_watermarks in the file that the transaction is in:" +
				" create it with watermark.Schema(SQLite)",
		}
	}
	return dialect.Fail(err)
}

// advanceStatement returns the statement for PostgreSQL and SQLite. It changes
// one row or none.
func advanceStatement(key dialect.Key, to int64) string {
	return fmt.Sprintf("INSERT INTO latchkey_watermarks AS marks (key_space, key_id, mark) VALUES (%d, %d, %d)"+
		" ON CONFLICT (key_space, key_id) DO UPDATE SET mark = excluded.mark, marked_at = excluded.marked_at"+
		" WHERE marks.mark < excluded.mark", key.Space, key.ID, to)
}

// mysqlAdvance returns the statement for MySQL and MariaDB.
//
// The number of rows that it reports depends on a setting of the driver,
// clientFoundRows. So a watermark that must not move makes a sum that no BIGINT
// holds. That is an error in every mode.
func mysqlAdvance(key dialect.Key, to int64) string {
	return fmt.Sprintf("INSERT INTO latchkey_watermarks (key_space, key_id, mark) VALUES (%d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE mark = IF(mark < %[3]d, %[3]d, 9223372036854775807 + (mark >= %[3]d)),"+
		" marked_at = CURRENT_TIMESTAMP(6)", key.Space, key.ID, to)
}
