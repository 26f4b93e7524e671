package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// Tidy ends a transaction that an earlier user of a pooled connection has left
// open, by db.Exec("BEGIN") for example. In such a transaction nothing would be
// committed, and the server would not end a silent session.
//
// It costs a round trip only if the driver does not show whether there is a
// transaction.
func Tidy(ctx context.Context, conn *sql.Conn) error {
	statement := "BEGIN; ROLLBACK" // ROLLBACK alone would be a warning in the server's log
	switch idle, known := dbconn.IsIdle(conn); {
	case idle:
		return nil
	case known:
		statement = "ROLLBACK"
	}
	_, err := conn.ExecContext(ctx, statement)
	if errcode.SQLState(err) != "" { // the transaction has failed, and allows no BEGIN
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	return err
}

// onPool calls f with a connection of db that is in no transaction. The error is
// a *Failure or that of ctx.
func onPool[T any](ctx context.Context, db *sql.DB, f func(*sql.Conn) (T, error)) (none T, err error) {
	conn, err := dbconn.Live(ctx, db)
	if err != nil {
		return none, dialect.Fail(err)
	}
	defer conn.Close()
	return tidied(ctx, conn, f)
}

// tidied is onPool for a connection that the caller has.
func tidied[T any](ctx context.Context, conn *sql.Conn, f func(*sql.Conn) (T, error)) (none T, err error) {
	if err := Tidy(ctx, conn); err != nil {
		return none, dialect.Fail(err)
	}
	result, err := f(conn)
	return result, dialect.Fail(err)
}

// terminateOwn ends the server process that carries it out. Every role may end
// its own.
const terminateOwn = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"
