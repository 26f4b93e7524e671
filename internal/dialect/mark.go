package dialect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// mysqlParse is MySQL's and MariaDB's error of a statement that they do not understand. The transaction lives
// after it as before.
const mysqlParse = 1064

// Mark moves key's mark in the table latchkey_watermarks up to "to", as part of tx, and keeps the row locked until
// tx ends. It reports false, and has changed nothing, if the mark is there already or beyond: then MySQL's
// statement has failed, PostgreSQL's and SQLite's have not.
//
// A transaction does not tell which database it is in. It is spoken to as PostgreSQL and SQLite first, and
// where that is not understood, as MySQL, for which it is harmless.
func Mark(ctx context.Context, tx Execer, key Key, to int64) (bool, error) {
	result, err := tx.ExecContext(ctx, markStatement(key, to))
	if number, _, ok := mysqlError(err); ok && number == mysqlParse {
		return markMySQL(ctx, tx, key, to)
	}
	if err != nil {
		return false, markFailure(err)
	}
	n, err := result.RowsAffected()
	return n == 1, Fail(err)
}

// A Querier asks for one row.
type Querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// MarkOf is how far key's mark has come by what is committed; ok is false if it has none. All databases
// understand its statement.
func MarkOf(ctx context.Context, db Querier, key Key) (at int64, ok bool, err error) {
	err = db.QueryRowContext(ctx, fmt.Sprintf("SELECT mark FROM latchkey_watermarks WHERE key_space = %d AND key_id = %d", key.Space, key.ID)).
		Scan(&at)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, markFailure(err)
	}
	return at, true, nil
}

// markFailure is Fail, which also knows SQLite's error of a table that is missing.
func markFailure(err error) error {
	if isNoFence(err) { // of any table
		return &Failure{
			Kind: Statement,
			Reason: "there is no table latchkey_watermarks in the file that the transaction is in:" +
				" create it with watermark.Schema(SQLite)",
		}
	}
	return Fail(err)
}

func markMySQL(ctx context.Context, tx Execer, key Key, to int64) (bool, error) {
	_, err := tx.ExecContext(ctx, mysqlMark(key, to))
	if number, _, _ := mysqlError(err); number == mysqlOutOfRange {
		return false, nil
	}
	return err == nil, Fail(err)
}

// markStatement is Mark's in the words of PostgreSQL and of SQLite. It changes one row or none.
func markStatement(key Key, to int64) string {
	return fmt.Sprintf("INSERT INTO latchkey_watermarks AS marks (key_space, key_id, mark) VALUES (%d, %d, %d)"+
		" ON CONFLICT (key_space, key_id) DO UPDATE SET mark = excluded.mark, marked_at = excluded.marked_at"+
		" WHERE marks.mark < excluded.mark", key.Space, key.ID, to)
}

// mysqlMark is the same in MySQL's. How many rows it changed depends on the driver's settings
// (clientFoundRows), so a mark that is not to move makes a sum that no BIGINT holds, which is an error in every
// mode.
func mysqlMark(key Key, to int64) string {
	return fmt.Sprintf("INSERT INTO latchkey_watermarks (key_space, key_id, mark) VALUES (%d, %d, %d)"+
		" ON DUPLICATE KEY UPDATE mark = IF(mark < %[3]d, %[3]d, 9223372036854775807 + (mark >= %[3]d)),"+
		" marked_at = CURRENT_TIMESTAMP(6)", key.Space, key.ID, to)
}

// The tables of marks. Their columns have the same names in every database.
const (
	postgresMarks = `CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space smallint NOT NULL,
	key_id    bigint   NOT NULL,
	mark      bigint   NOT NULL,
	marked_at timestamptz NOT NULL DEFAULT pg_catalog.now(),
	PRIMARY KEY (key_space, key_id)
) WITH (fillfactor = 70)`

	sqliteMarks = `CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space INTEGER NOT NULL,
	key_id    INTEGER NOT NULL,
	mark      INTEGER NOT NULL,
	marked_at TEXT    NOT NULL DEFAULT CURRENT_TIMESTAMP,
	PRIMARY KEY (key_space, key_id)
)`

	mysqlMarks = `CREATE TABLE IF NOT EXISTS latchkey_watermarks (
	key_space SMALLINT NOT NULL,
	key_id    BIGINT NOT NULL,
	mark      BIGINT NOT NULL,
	marked_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
	PRIMARY KEY (key_space, key_id)
) ENGINE = InnoDB`
)
