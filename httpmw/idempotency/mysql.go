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
	dialect: "mysql", table: func() table { return &mysqlTable{literalTable: literalTable{name: "latchkey_responses"}} },
	check: checkMySQL,
	forgetSQL: "DELETE FROM latchkey_responses WHERE created_at < CURRENT_TIMESTAMP(6) - INTERVAL %d MICROSECOND" +
		" ORDER BY created_at LIMIT %d",

	// At the default level the DELETE would lock the gaps between rows, and so
	// block inserts of other requests.
	forgetOptions: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
}

// tidb is TiDB. A transaction has its snapshot from its beginning there, so a row
// that was committed later is read FOR UPDATE. In an optimistic transaction an
// insert would not wait for that of another one.
var tidb = &kind{
	dialect: "mysql", table: func() table {
		return &mysqlTable{literalTable: literalTable{name: "latchkey_responses", locking: " FOR UPDATE"}, tidb: true}
	},
	check: checkMySQL, forgetSQL: mysql.forgetSQL, forgetOptions: mysql.forgetOptions,
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
	tidb         bool
	before       mysqlSettings
}

// mysqlSettings are settings of a session.
type mysqlSettings struct {
	autocommit int64
	lockWait   int64  // seconds
	idle       int64  // seconds
	mode       string // of transactions of TiDB
}

func (t *mysqlTable) enter(ctx context.Context, conn *sql.Conn, maxIdle, maxWait time.Duration) error {
	var schema sql.NullString
	mode := "''"
	if t.tidb {
		mode = "@@SESSION.tidb_txn_mode"
	}
	err := conn.QueryRowContext(ctx, "SELECT @@SESSION.autocommit, @@SESSION.innodb_lock_wait_timeout, @@SESSION.wait_timeout, "+mode+", DATABASE()").
		Scan(&t.before.autocommit, &t.before.lockWait, &t.before.idle, &t.before.mode, &schema)
	if err != nil {
		return err
	}
	if schema.Valid {
		t.name = "`" + strings.ReplaceAll(schema.String, "`", "``") + "`.latchkey_responses"
	}
	idle := min(t.before.idle, int64((maxIdle+time.Second-1)/time.Second))
	return t.set(ctx, conn, mysqlSettings{autocommit: 0, lockWait: int64(maxWait / time.Second), idle: idle, mode: "pessimistic"})
}

// set sets the session's settings.
func (t *mysqlTable) set(ctx context.Context, conn *sql.Conn, to mysqlSettings) error {
	mode := ""
	if t.tidb {
		mode = ", SESSION tidb_txn_mode = '" + to.mode + "'"
	}
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION autocommit = %d, SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d%s",
		to.autocommit, to.lockWait, to.idle, mode))
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
		_, err = tx.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", t.before.lockWait))
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
	return t.set(ctx, conn, t.before)
}
