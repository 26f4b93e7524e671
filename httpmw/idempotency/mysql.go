package idempotency

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// mysqlDatabase is MySQL and MariaDB, with InnoDB.
//
// A transaction can end there without an error that the handler must notice:
// DDL commits it, and a deadlock rolls back all of it. With autocommit off,
// later statements of the handler are in another transaction, which is rolled
// back. The savepoint is gone by then, and fill notices that.
//
// Invariant: no statement of the handler is committed by itself.
type mysqlDatabase struct{}

// tableSQL returns the table's engine, and how many of its indexes prevent a
// key from being inserted twice.
const tableSQL = "SELECT COALESCE(t.ENGINE, ''), (SELECT COUNT(*) FROM (" +
	"SELECT INDEX_NAME FROM information_schema.STATISTICS" +
	" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'latchkey_responses' AND NON_UNIQUE = 0" +
	" GROUP BY INDEX_NAME HAVING COUNT(*) = 1 AND MAX(COLUMN_NAME) = 'key') AS unique_indexes)" +
	" FROM information_schema.TABLES t WHERE t.TABLE_SCHEMA = DATABASE() AND t.TABLE_NAME = 'latchkey_responses'"

// check finds what INSERT does not notice. Without a unique key each retry
// takes effect again, and without InnoDB nothing is rolled back.
func (mysqlDatabase) check(ctx context.Context, conn *sql.Conn) error {
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
		return errOtherTable
	}
	return nil
}

func (mysqlDatabase) enter(ctx context.Context, conn *sql.Conn, maxIdle, maxWait time.Duration) (responseTable, error) {
	m := &mysqlTable{name: "latchkey_responses"}
	var schema sql.NullString
	err := conn.QueryRowContext(ctx, "SELECT @@SESSION.autocommit, @@SESSION.innodb_lock_wait_timeout, @@SESSION.wait_timeout, DATABASE()").
		Scan(&m.autocommit, &m.lockWait, &m.idle, &schema)
	if err != nil {
		return nil, err
	}
	if schema.Valid { // the handler may USE another one
		m.name = "`" + strings.ReplaceAll(schema.String, "`", "``") + "`.latchkey_responses"
	}
	idle := min(m.idle, int64((maxIdle+time.Second-1)/time.Second))
	return m, m.set(ctx, conn, 0, int64(maxWait/time.Second), idle)
}

// forget selects the rows first, since DELETE has no SKIP LOCKED.
func (mysqlDatabase) forget(ctx context.Context, tx *sql.Tx, olderThan time.Duration, limit int) (int64, error) {
	rows, err := tx.QueryContext(ctx, fmt.Sprintf("SELECT `key` FROM latchkey_responses WHERE created_at < CURRENT_TIMESTAMP(6) - INTERVAL %d MICROSECOND"+
		" ORDER BY created_at LIMIT %d FOR UPDATE SKIP LOCKED", olderThan.Microseconds(), limit))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var keys []string
	for rows.Next() {
		var key []byte
		if err := rows.Scan(&key); err != nil {
			return 0, err
		}
		keys = append(keys, hexLiteral(key))
	}
	if err := rows.Err(); err != nil || len(keys) == 0 {
		return 0, err
	}
	result, err := tx.ExecContext(ctx, "DELETE FROM latchkey_responses WHERE `key` IN ("+strings.Join(keys, ", ")+")")
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// forgetOptions returns READ COMMITTED. At the default level the statement
// would lock the gaps between rows, and so block inserts of other requests.
func (mysqlDatabase) forgetOptions() *sql.TxOptions {
	return &sql.TxOptions{Isolation: sql.LevelReadCommitted}
}

func (mysqlDatabase) oneWriter() bool { return false }

// A mysqlTable is a responseTable of MySQL. It has the session's settings of
// before.
type mysqlTable struct {
	name       string // with its database
	autocommit int64
	lockWait   int64 // seconds
	idle       int64 // seconds
}

// set sets the session's autocommit, and its bounds in seconds.
func (*mysqlTable) set(ctx context.Context, conn *sql.Conn, autocommit, lockWait, idle int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION autocommit = %d, SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d",
		autocommit, lockWait, idle))
	return err
}

func (m *mysqlTable) insert(ctx context.Context, tx *sql.Tx, p payload) (bool, error) {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (`key`, fingerprint) VALUES (%s, %s)",
		m.name, hexLiteral(p.key[:]), hexLiteral(p.fingerprint[:])))
	switch {
	case serverCode(err) == mysqlDuplicate:
		return false, nil
	case err != nil:
		return false, err
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", m.lockWait)); err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, effectSQL)
	return true, err
}

// find sees what was committed before insert failed. It is the transaction's
// first read, and takes the snapshot.
func (m *mysqlTable) find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row {
	return tx.QueryRowContext(ctx, fmt.Sprintf("SELECT fingerprint, status, header, body FROM %s WHERE `key` = %s", m.name, hexLiteral(p.key[:])))
}

func (m *mysqlTable) fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) error {
	if _, err := tx.ExecContext(ctx, keepSQL); err != nil {
		return err
	}
	return unlessNone(tx.ExecContext(ctx, fmt.Sprintf("UPDATE %s SET status = ?, header = ?, body = ? WHERE `key` = %s", m.name, hexLiteral(p.key[:])),
		a.status, a.encodeHeader(), a.body))
}

// leave rolls back an open transaction first, which autocommit = 1 would
// commit.
func (m *mysqlTable) leave(ctx context.Context, conn *sql.Conn, clean bool) error {
	if !clean {
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
	}
	return m.set(ctx, conn, m.autocommit, m.lockWait, m.idle)
}
