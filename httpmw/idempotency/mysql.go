package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// mysql is MySQL and MariaDB, with InnoDB.
//
// A transaction can end there without an error that the handler must notice:
// DDL commits it, and a deadlock rolls back all of it. With autocommit off,
// later statements of the handler are in another transaction, which is rolled
// back. The savepoint is gone by then, and fill notices that.
//
// Invariant: no statement of the handler is committed by itself.
var mysql = &kind{
	table: func() table { return &mysqlTable{literalTable: literalTable{"latchkey_responses"}} },
	check: checkMySQL,
	forgetSQL: "DELETE FROM latchkey_responses WHERE created_at < CURRENT_TIMESTAMP(6) - INTERVAL %d MICROSECOND" +
		" ORDER BY created_at LIMIT %d",

	// At the default level the DELETE would lock the gaps between rows, and so
	// block inserts of other requests.
	forgetOptions: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
}

// tableSQL returns the table's engine, and how many of its indexes prevent a
// key from being inserted twice.
const tableSQL = "SELECT COALESCE(t.ENGINE, ''), (SELECT COUNT(*) FROM (" +
	"SELECT INDEX_NAME FROM information_schema.STATISTICS" +
	" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'latchkey_responses' AND NON_UNIQUE = 0" +
	" GROUP BY INDEX_NAME HAVING COUNT(*) = 1 AND MAX(COLUMN_NAME) = 'key') AS unique_indexes)" +
	" FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'latchkey_responses'"

// checkMySQL finds what INSERT does not notice. Without a unique key each retry
// takes effect again, and without InnoDB nothing is rolled back.
func checkMySQL(ctx context.Context, conn *sql.Conn) error {
	var (
		engine string
		unique int
	)
	err := conn.QueryRowContext(ctx, tableSQL).Scan(&engine, &unique)
	switch {
	case errors.Is(err, sql.ErrNoRows): // the insert reports that there is none
		return nil
	case err != nil:
		return err
	case unique == 0 || engine != "InnoDB":
		return errTable
	}
	return nil
}

// A mysqlTable is a table of MySQL. It has the session's settings of before.
type mysqlTable struct {
	literalTable // its name has the database: the handler may USE another one

	autocommit int64
	lockWait   int64 // seconds
	idle       int64 // seconds
}

func (t *mysqlTable) enter(ctx context.Context, conn *sql.Conn, maxIdle, maxWait time.Duration) error {
	var schema sql.NullString
	err := conn.QueryRowContext(ctx, "SELECT @@SESSION.autocommit, @@SESSION.innodb_lock_wait_timeout, @@SESSION.wait_timeout, DATABASE()").
		Scan(&t.autocommit, &t.lockWait, &t.idle, &schema)
	if err != nil {
		return err
	}
	if schema.Valid {
		t.name = "`" + strings.ReplaceAll(schema.String, "`", "``") + "`.latchkey_responses"
	}
	idle := min(t.idle, int64((maxIdle+time.Second-1)/time.Second))
	return t.set(ctx, conn, 0, int64(maxWait/time.Second), idle)
}

// set sets the session's autocommit, and its bounds in seconds.
func (*mysqlTable) set(ctx context.Context, conn *sql.Conn, autocommit, lockWait, idle int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION autocommit = %d, SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d",
		autocommit, lockWait, idle))
	return err
}

// insert makes no snapshot. The first read of the transaction, which is that of
// find, sees what was committed before insert failed.
func (t *mysqlTable) insert(ctx context.Context, tx *sql.Tx, p payload) (bool, error) {
	_, err := tx.ExecContext(ctx, t.row(p))
	if errcode.Of(err) == mysqlDuplicate {
		return false, nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", t.lockWait))
	}
	return true, err
}

// leave rolls back an open transaction first, which autocommit = 1 would
// commit.
func (t *mysqlTable) leave(ctx context.Context, conn *sql.Conn, clean bool) error {
	if !clean {
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
	return t.set(ctx, conn, t.autocommit, t.lockWait, t.idle)
}
