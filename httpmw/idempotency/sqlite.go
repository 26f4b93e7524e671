package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// sqliteDatabase is a file of SQLite. Only one transaction at a time can write
// to it. So an insert waits for every other transaction, whatever its key.
// Nothing in SQLite ends the transaction of a frozen process.
type sqliteDatabase struct{}

func (sqliteDatabase) check(context.Context, *sql.Conn) error { return nil } // ON CONFLICT (key)

func (sqliteDatabase) enter(ctx context.Context, conn *sql.Conn, _, maxWait time.Duration) (responseTable, error) {
	s := &sqliteTable{}
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&s.busyTimeout); err != nil {
		return nil, err
	}
	return s, s.set(ctx, conn, maxWait.Milliseconds())
}

func (sqliteDatabase) forget(ctx context.Context, tx *sql.Tx, olderThan time.Duration, limit int) (int64, error) {
	result, err := tx.ExecContext(ctx, fmt.Sprintf(`DELETE FROM latchkey_responses WHERE key IN (
		SELECT key FROM latchkey_responses WHERE created_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', '-%.6f seconds')
		ORDER BY created_at LIMIT %d)`, olderThan.Seconds(), limit))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (sqliteDatabase) forgetOptions() *sql.TxOptions { return nil }

func (sqliteDatabase) oneWriter() bool { return true }

// A sqliteTable is a responseTable of SQLite. It has the connection's
// busy_timeout of before.
type sqliteTable struct {
	busyTimeout int64 // milliseconds
}

func (*sqliteTable) set(ctx context.Context, conn *sql.Conn, busyTimeout int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout))
	return err
}

// insert writes as the first statement of the transaction, so that it waits for
// other writers. A transaction that has read before would fail instead.
func (*sqliteTable) insert(ctx context.Context, tx *sql.Tx, p payload) (bool, error) {
	result, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO latchkey_responses (key, fingerprint) VALUES (%s, %s) ON CONFLICT (key) DO NOTHING",
		hexLiteral(p.key[:]), hexLiteral(p.fingerprint[:])))
	if err != nil {
		return false, err
	}
	if n, err := result.RowsAffected(); n == 0 || err != nil {
		return false, err
	}
	_, err = tx.ExecContext(ctx, effectSQL)
	return true, err
}

func (*sqliteTable) find(ctx context.Context, tx *sql.Tx, p payload) *sql.Row {
	return tx.QueryRowContext(ctx, "SELECT fingerprint, status, header, body FROM latchkey_responses WHERE key = "+hexLiteral(p.key[:]))
}

func (*sqliteTable) fill(ctx context.Context, tx *sql.Tx, p payload, a *storedResponse) error {
	if _, err := tx.ExecContext(ctx, keepSQL); err != nil {
		return err
	}
	return unlessNone(tx.ExecContext(ctx, "UPDATE latchkey_responses SET status = ?, header = ?, body = ? WHERE key = "+hexLiteral(p.key[:]),
		a.status, a.encodeHeader(), a.body))
}

// leave has nothing to roll back. Drivers of SQLite roll back themselves when a
// COMMIT finds the file busy.
func (s *sqliteTable) leave(ctx context.Context, conn *sql.Conn, _ bool) error {
	return s.set(ctx, conn, s.busyTimeout)
}
