package leasetable

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// A sqliteTx is a transaction in progress that has locked the file for writing.
// After a statement has failed, later ones do nothing.
type sqliteTx struct {
	ctx  context.Context //nolint:containedctx // the transaction is one call
	conn *sql.Conn
	err  error // the first
}

// note notes an error that is not of a statement.
func (tx *sqliteTx) note(err error) {
	if tx.err == nil {
		tx.err = err
	}
}

// exec returns the number of rows that the statement has changed.
func (tx *sqliteTx) exec(statement string, args ...any) int64 {
	if tx.err != nil {
		return 0
	}
	result, err := tx.conn.ExecContext(tx.ctx, statement, args...)
	if err != nil {
		tx.err = err
		return 0
	}
	n, err := result.RowsAffected()
	tx.err = err
	return n
}

// keysOfSession lists the keys of a session, as postgres.ParseKeys reads them.
const keysOfSession = `SELECT coalesce(group_concat(key_space || ',' || key_id), '') FROM main.latchkey_locks WHERE session = ?`

// keys returns what a query that begins with keysOfSession lists.
func (tx *sqliteTx) keys(query string, args ...any) (keys []dialect.Key) {
	var list string
	if tx.err == nil {
		tx.err = tx.conn.QueryRowContext(tx.ctx, query, args...).Scan(&list)
	}
	if tx.err == nil {
		keys, tx.err = postgres.ParseKeys(list)
	}
	return keys
}

// transact carries out f in a transaction. After an error the transaction had
// no effect. If the commit has failed, its effect is unknown.
func (t *sqliteTables) transact(ctx context.Context, f func(*sqliteTx) error) error {
	conn, err := dbconn.Lend(ctx, t.db)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	was, err := t.lend(ctx, conn)
	if err == nil {
		if err = whileBusy(ctx, conn, "BEGIN IMMEDIATE"); err == nil {
			// Nothing waits from here on, so no statement is interrupted.
			tx := sqliteTx{ctx: context.WithoutCancel(ctx), conn: conn}
			if err = f(&tx); err == nil {
				err = whileBusy(ctx, conn, "COMMIT")
			}
		}
		if err != nil {
			rollback(conn)
		}
	}
	restore(conn, was)
	return err
}

// whileBusy carries out a statement that locks the file, or a commit, and waits
// for other connections until ctx ends. A commit has to wait for readers if the
// journal is not write-ahead.
//
// Other transactions are normally short. The driver does not get ctx, since its
// end must not leave a transaction behind that has just begun.
func whileBusy(ctx context.Context, conn *sql.Conn, statement string) error {
	return untilFree(ctx, func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), statement)
		return err
	})
}

// untilFree calls f again while other connections keep the file locked, until
// ctx ends.
func untilFree(ctx context.Context, f func() error) error {
	for i := 0; ; i++ {
		err := f()
		if err == nil || !errcode.IsBusy(err) || ctx.Err() != nil {
			return err
		}
		dbconn.Rest(ctx, i) // a shared cache does not wait by itself
	}
}

// rollback ends the transaction, if there is one. If that fails, it destroys
// the connection.
func rollback(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		dbconn.Destroy(conn, "")
	}
}

const restoreTimeout = time.Second // for a rollback, or for settings to be put back

// A pragma is a setting of a connection.
type pragma struct {
	name  string
	value int64
}

var (
	// busyTimeout is in milliseconds. Then whileBusy tries again.
	busyTimeout = pragma{"busy_timeout", 200}

	// synchronousNormal does not wait for the disk at each commit. A crash of
	// the machine may take back the last locks, and ends the processes that
	// hold them. It is safe with a write-ahead journal only.
	synchronousNormal = pragma{"main.synchronous", 1}
)

// lend sets a borrowed connection for a transaction, and returns the settings that
// it had and has no more. It first ends a transaction that an earlier user has left
// open. Normally there is none, and the statement fails within microseconds.
func (t *sqliteTables) lend(ctx context.Context, conn *sql.Conn) (was []pragma, err error) {
	_, _ = conn.ExecContext(ctx, "ROLLBACK")
	ours := []pragma{busyTimeout}
	if t.wal {
		ours = append(ours, synchronousNormal)
	}
	for _, setting := range ours {
		old := setting
		if err := readWhileBusy(ctx, conn, "PRAGMA "+setting.name, &old.value); err != nil {
			return was, err
		}
		if old == setting {
			continue
		}
		was = append(was, old)
		if err := setting.set(ctx, conn); err != nil {
			return was, err
		}
	}
	return was, nil
}

// restore gives a borrowed connection its settings back, or destroys it.
func restore(conn *sql.Conn, was []pragma) {
	ctx, cancel := context.WithTimeout(context.Background(), restoreTimeout)
	defer cancel()
	for _, setting := range was {
		if setting.set(ctx, conn) != nil {
			dbconn.Destroy(conn, "")
			return
		}
	}
}

func (p pragma) set(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA %s = %d", p.name, p.value))
	return err
}
