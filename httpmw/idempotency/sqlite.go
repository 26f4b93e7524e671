package idempotency

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// sqlite is a file of SQLite. Only one transaction at a time can write to it.
// So an insert waits for every other transaction, whatever its key. Nothing in
// SQLite ends the transaction of a frozen process.
var sqlite = &kind{
	dialect: "sqlite", table: func() table { return &sqliteTable{literalTable: literalTable{name: "latchkey_responses"}} },
	forgetSQL: `DELETE FROM latchkey_responses WHERE key IN (
		SELECT key FROM latchkey_responses WHERE created_at < strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', printf('-%%.6f seconds', %d / 1e6))
		ORDER BY created_at LIMIT %d)`,
	oneWriter: true,
}

// A sqliteTable is a table of SQLite. It has the connection's busy_timeout of
// before.
type sqliteTable struct {
	literalTable

	busyTimeout int64 // milliseconds
}

func (t *sqliteTable) enter(ctx context.Context, conn *sql.Conn, _, maxWait time.Duration) error {
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&t.busyTimeout); err != nil {
		return err
	}
	return t.set(ctx, conn, maxWait.Milliseconds())
}

func (*sqliteTable) set(ctx context.Context, conn *sql.Conn, busyTimeout int64) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", busyTimeout))
	return err
}

// insert writes as the first statement of the transaction, so that it waits for
// other writers. A transaction that has read before would fail instead. Without
// a unique key ON CONFLICT fails.
func (t *sqliteTable) insert(ctx context.Context, tx *sql.Tx, p payload) (bool, error) {
	n, err := affected(tx.ExecContext(ctx, t.row(p)+" ON CONFLICT (key) DO NOTHING"))
	return n > 0, err
}

// leave has nothing to roll back. Drivers of SQLite roll back themselves when a
// COMMIT finds the file busy.
func (t *sqliteTable) leave(ctx context.Context, conn *sql.Conn, _ bool) error {
	return t.set(ctx, conn, t.busyTimeout)
}
