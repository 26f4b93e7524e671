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
	"github.com/latchkey-go/latchkey/internal/dialect/usertx"
)

// A sideTx takes a token of a session from a table, on a connection that it
// borrows from the pool. A statement that changes rows may wait for a backup, for
// a row of another session or for a replica. The session's own connection does
// not wait with it.
//
// Invariant: all its changes are in transactions. If the connection breaks
// before COMMIT is sent, they have no effect. So a change that has been given
// up does not happen later. The server ends a transaction whose client is
// silent, so a frozen process does not keep a row locked for all others.
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

// Token implements dialect.Session. The session survives every failure of its
// sideTx. Then it asks whether the session lives, which also shows the server that
// its client lives.
func (s *session) Token() (t dialect.Token, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.bound)
	defer cancel()
	lending, enough := context.WithTimeout(ctx, bound.Of(sideTxTimeout))
	defer enough()
	err = s.pool.Once(lending, func(conn *sql.Conn) (err error) {
		tx := sideTx{s, ctx, conn}
		// START TRANSACTION would commit what an earlier user has left open.
		if err = tx.exec(rollbackWork); err != nil {
			return err
		}
		idle := "wait_timeout"
		if s.mariadb {
			idle = "idle_write_transaction_timeout" // goes before wait_timeout
		}
		if err = tx.exec(fmt.Sprintf("SET @latchkey_idle = @@SESSION.%s, SESSION %[1]s = %d", idle, wholeSeconds(s.bound))); err == nil {
			t, err = tx.token()
		}
		if tx.exec("SET SESSION "+idle+" = @latchkey_idle") != nil {
			dbconn.Destroy(conn, "")
		}
		return err
	})
	if err != nil {
		return dialect.Token{}, dialect.AsStatement(dialect.Fail(err))
	}
	if _, err = s.ask(context.Background(), "'1'"); err != nil {
		return dialect.Token{}, dialect.Fail(err)
	}
	return t, nil
}

// token returns the next token. If a table or its row is missing, it creates all
// of them first.
func (tx sideTx) token() (dialect.Token, error) {
	t, err := tx.attempt()
	if number, _, _ := errcode.MySQL(err); number != errcode.MySQLNoSuchTable && !errors.Is(err, errNoRow) {
		return t, err
	}
	for _, statement := range usertx.FenceSchema().MySQL {
		if err := tx.exec(statement); err != nil {
			if number, _, _ := errcode.MySQL(err); number != errcode.MySQLDenied && dialect.IsStatement(err) { // it says so itself
				err = &dialect.Failure{Kind: dialect.Statement, State: errcode.SQLState(err), Reason: noTables + dialect.Fail(err).Error()}
			}
			return t, err
		}
	}
	return tx.attempt()
}

// errNoRow is the failure of a counter without its row. The process that made the
// table may have died before.
var errNoRow = &dialect.Failure{Kind: dialect.Statement, Reason: "latchkey_tokens has no row: run the statements of FenceSchema(MySQL) once"}

const noTables = "a table is missing and could not be made: run the statements of FenceSchema(MySQL) once: "

// The ends of a transaction, whatever the user's completion_type says.
const (
	commit       = "COMMIT AND NO CHAIN NO RELEASE"
	rollbackWork = "ROLLBACK AND NO CHAIN NO RELEASE"
)

// attempt returns the next token in one transaction. Nothing else locks two rows
// of the table, so no deadlock ends it.
func (tx sideTx) attempt() (t dialect.Token, err error) {
	ctx, cancel := context.WithTimeout(tx.ctx, bound.Of(sideTxTimeout))
	defer cancel()
	tx.ctx = ctx
	err = tx.exec("START TRANSACTION READ WRITE")
	if err == nil {
		t, err = tx.next()
	}
	if err == nil {
		err = tx.exec(commit)
	}
	if err != nil && tx.exec(rollbackWork) != nil {
		dbconn.Destroy(tx.conn, "")
	}
	return t, err
}

// next increments the counter and reads it. Its row is locked until the
// transaction ends, and the session lives meanwhile. So a later holder of a key
// gets a later token.
//
// After a failover the clock is another one, and may be behind. So the epoch
// rises when another server counts than before.
func (tx sideTx) next() (t dialect.Token, err error) {
	counted, err := tx.count()
	if err == nil && counted == 0 {
		err = errNoRow
	}
	if err != nil {
		return t, err
	}
	var (
		mine bool
		name string
	)
	err = tx.conn.QueryRowContext(tx.ctx, fmt.Sprintf(tokenQuery, tx.s.name, tx.s.id, tx.s.serverName)).
		Scan(&mine, &name, &t.System, &t.Epoch, &t.Number)
	if err == nil && !mine {
		err = errElsewhere
	}
	t.Here = tx.s.serverName + " = " + dialect.Quoted(name)
	t.MySQL = true // the fence's words
	return t, err
}

const (
	// tokenQuery reads the counter. Its first column is true while the session
	// lives on this very server.
	tokenQuery = "SELECT IFNULL(IS_USED_LOCK('%s') = %d, 0), %s, system_id, epoch, number FROM latchkey_tokens WHERE only_row = 1 LIMIT 1"

	// countStatement increments a counter that is never behind the clock, in
	// microseconds. So tokens grow even if a crash has lost the last ones.
	countStatement = "UPDATE %[1]s latchkey_tokens SET epoch = epoch + (server_hash <> %[2]d), server_hash = %[2]d," +
		" number = GREATEST(number + 1, UNIX_TIMESTAMP() * 1000000 + MICROSECOND(NOW(6))) WHERE only_row = 1"
)

// count increments the counter. It waits at most a second for locks, even if the
// client has given it up.
func (tx sideTx) count() (int64, error) {
	before, hint := "", "/*+ SET_VAR(innodb_lock_wait_timeout = 1) SET_VAR(lock_wait_timeout = 1) SET_VAR(sql_safe_updates = 0) */"
	if tx.s.mariadb {
		before, hint = "SET STATEMENT innodb_lock_wait_timeout = 1, lock_wait_timeout = 1, sql_safe_updates = 0 FOR ", ""
	}
	result, err := tx.conn.ExecContext(tx.ctx, before+fmt.Sprintf(countStatement, hint, tx.s.server))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// exec sends a statement.
func (tx sideTx) exec(statement string) error {
	_, err := tx.conn.ExecContext(tx.ctx, statement)
	return err
}

var errElsewhere = &dialect.Failure{Kind: dialect.Statement, Reason: "the session has ended, or the pool's other connections reach another server than its own"}

// secretsTable is the table of secret checks. No session uses it. It is there for
// lockdoctor, and for processes of an earlier release in the same fleet, which
// check secrets in it.
const secretsTable = `CREATE TABLE IF NOT EXISTS latchkey_secret_checks (
	class   INT NOT NULL, -- of a namespace
	fingerprint INT NOT NULL, -- of the secret that its keys are made with
	session VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, -- a lock that is held while it lives
	PRIMARY KEY (class, fingerprint, session)
) ENGINE = InnoDB`

// Schema returns the statements that create the table of sessions.
func Schema() []string { return []string{secretsTable} }
