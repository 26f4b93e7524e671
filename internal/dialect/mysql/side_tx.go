package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// An errand is what a session does in tables, on a connection of the pool that is
// borrowed for it. A statement that changes rows may wait for a backup's lock, for another's
// row or for a replica, and the session's own connection does not wait with it.
//
// It consists of transactions: one whose connection breaks before COMMIT is sent is undone, so that
// nothing that was given up for lost comes late.
type sideTx struct {
	s    *session
	ctx  context.Context
	conn *sql.Conn
}

// sideTxTimeout is what each part of an errand may take: less than the patience of callers, who
// all wait for the session while it is on one.
const sideTxTimeout = 600 * time.Millisecond

// sideTxBound is what a whole errand may take: so little that two that fail, one after the
// other, each with Held behind it, end no lease.
func sideTxBound(set dialect.Settings) time.Duration {
	return min(set.StatementTimeout/3, 3*sideTxTimeout)
}

// The user's completion_type must not turn them into something else.
const (
	commit       = "COMMIT AND NO CHAIN NO RELEASE"
	rollbackWork = "ROLLBACK AND NO CHAIN NO RELEASE"
)

// errand has f done, and asks then whether the session lives, which also tells the
// server that its client does. It outlives every failure of f.
func (s *session) inSideTx(f func(sideTx) error) error {
	if err := s.aside(f); err != nil {
		return err
	}
	_, err := s.ask(context.Background(), "'1'")
	return dialect.Fail(err)
}

// aside has f done, which the session's connection takes no notice of.
func (s *session) aside(f func(sideTx) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), s.bound)
	defer cancel()
	lending, enough := context.WithTimeout(ctx, sideTxTimeout)
	defer enough()
	err := s.pool.Once(lending, func(conn *sql.Conn) error {
		tx := sideTx{s, ctx, conn}
		// Its last user may have left a transaction open, which START TRANSACTION would commit.
		if err := tx.exec(rollbackWork); err != nil {
			return err
		}
		return f(tx)
	})
	return dialect.AsStatement(dialect.Fail(err))
}

// transaction has f done in one, and again where that was rolled back for the sake of others.
func (tx sideTx) transaction(f func(sideTx) error) (err error) {
	for i := range dbconn.Attempts {
		if err = tx.attempt(f); !dbconn.RolledBack(err) {
			return err
		}
		dbconn.Rest(tx.ctx, i)
	}
	return err
}

func (tx sideTx) attempt(f func(sideTx) error) error {
	ctx, cancel := context.WithTimeout(tx.ctx, sideTxTimeout)
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

func (tx sideTx) exec(statement string) error {
	_, err := tx.conn.ExecContext(tx.ctx, statement)
	return err
}

// change carries out a statement that begins with verb and changes rows. It waits for no lock for long, even
// if nobody waits for it any more.
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

// withTables has f done, and once more when the table was missing that it needs and
// the statements have made it.
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

// mine is an expression: whether the session lives, on this very server.
func (tx sideTx) mine() string {
	return fmt.Sprintf("IFNULL(IS_USED_LOCK('%s') = %d, 0)", tx.s.name, tx.s.id)
}

var errElsewhere = &dialect.Failure{Kind: dialect.Statement, Reason: "the session has ended, or the pool's other connections reach another server than its own"}
