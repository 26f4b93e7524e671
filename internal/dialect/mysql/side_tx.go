package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A sideTx is work of a session in tables, on a connection that it borrows from
// the pool. A statement that changes rows may wait for a backup, for a row of
// another session or for a replica. The session's own connection does not wait
// with it.
//
// Invariant: all its changes are in transactions. If the connection breaks
// before COMMIT is sent, they have no effect. So a change that has been given
// up does not happen later.
type sideTx struct {
	s    *session
	ctx  context.Context
	conn *sql.Conn
}

// sideTxTimeout bounds each part of a sideTx. It is less than callers wait,
// since all of them wait for the session meanwhile.
const sideTxTimeout = 600 * time.Millisecond

// sideTxBound bounds a whole sideTx. Two of them may fail one after the other,
// each followed by Held, without ending a lease.
func sideTxBound(set dialect.Settings) time.Duration {
	return min(set.StatementTimeout/3, 3*bound.Of(sideTxTimeout))
}

// The ends of a transaction, whatever the user's completion_type says.
const (
	commit       = "COMMIT AND NO CHAIN NO RELEASE"
	rollbackWork = "ROLLBACK AND NO CHAIN NO RELEASE"
)

// inSideTx calls f, and then asks whether the session lives, which also shows
// the server that its client lives. The session survives every failure of f.
func (s *session) inSideTx(f func(sideTx) error) error {
	if err := s.aside(f); err != nil {
		return err
	}
	_, err := s.ask(context.Background(), "'1'")
	return dialect.Fail(err)
}

// aside calls f on a borrowed connection, and leaves the session's own
// connection alone.
func (s *session) aside(f func(sideTx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.bound)
	defer cancel()
	lending, enough := context.WithTimeout(ctx, bound.Of(sideTxTimeout))
	defer enough()
	err := s.pool.Once(lending, func(conn *sql.Conn) error {
		tx := sideTx{s, ctx, conn}
		// START TRANSACTION would commit what an earlier user has left open.
		if err := tx.exec(rollbackWork); err != nil {
			return err
		}
		return f(tx)
	})
	return dialect.AsStatement(dialect.Fail(err))
}

// transaction calls f in a transaction. It tries again if that was rolled back
// because of other transactions.
func (tx sideTx) transaction(f func(sideTx) error) (err error) {
	for i := range dbconn.Attempts {
		if err = tx.attempt(f); !dbconn.RolledBack(err) {
			return err
		}
		dbconn.Rest(tx.ctx, i)
	}
	return err
}

// attempt is one attempt of transaction.
func (tx sideTx) attempt(f func(sideTx) error) error {
	ctx, cancel := context.WithTimeout(tx.ctx, bound.Of(sideTxTimeout))
	defer cancel()
	tx.ctx = ctx
	err := tx.exec("START TRANSACTION READ WRITE")
	if err == nil {
		err = f(tx)
	}
	if err == nil {
		err = tx.exec(commit)
	}
	if err != nil {
		if tx.exec(rollbackWork) != nil {
			dbconn.Destroy(tx.conn, "")
		}
	}
	return err
}

// exec sends a statement.
func (tx sideTx) exec(statement string) error {
	_, err := tx.conn.ExecContext(tx.ctx, statement)
	return err
}

// change sends a statement that begins with verb and changes rows. It waits at
// most a second for locks, even if the client has given it up.
func (tx sideTx) change(verb, rest string) (changed int64, err error) {
	statement := verb + " /*+ SET_VAR(innodb_lock_wait_timeout = 1) SET_VAR(lock_wait_timeout = 1) SET_VAR(sql_safe_updates = 0) */ " + rest
	if tx.s.mariadb {
		statement = "SET STATEMENT innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, sql_safe_updates = 0 FOR " + verb + " " + rest
	}
	result, err := tx.conn.ExecContext(tx.ctx, statement)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// withTables calls f. If a table is missing, it creates the tables and calls f
// again.
func (tx sideTx) withTables(statements []string, f func() error) error {
	err := f()
	if number, _, _ := errcode.MySQL(err); number != errcode.MySQLNoSuchTable {
		return err
	}
	for _, statement := range statements {
		if err := tx.exec(statement); err != nil {
			return noTables(err)
		}
	}
	return f()
}

// noTables returns the failure of a statement that creates a table. It names
// the schema functions.
func noTables(err error) error {
	number, _, ok := errcode.MySQL(err)
	if !ok {
		return err
	}
	var failure *dialect.Failure
	if errors.As(dialect.Fail(err), &failure) && failure.Kind == dialect.Statement && number != errcode.MySQLDenied { // which says so itself
		failure.Reason = "a table is missing and could not be made: run the statements of Schema(MySQL) and FenceSchema(MySQL) once: " + failure.Reason
	}
	return failure
}

// mine is an expression that holds while the session lives on this very server.
func (tx sideTx) mine() string {
	return fmt.Sprintf("IFNULL(IS_USED_LOCK('%s') = %d, 0)", tx.s.name, tx.s.id)
}

var errElsewhere = &dialect.Failure{Kind: dialect.Statement, Reason: "the session has ended, or the pool's other connections reach another server than its own"}
