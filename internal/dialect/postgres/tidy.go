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
	if err := Tidy(ctx, conn); err != nil {
		return none, dialect.Fail(err)
	}
	result, err := f(conn)
	return result, dialect.Fail(err)
}

// terminateOwn ends the server process that carries it out. Every role may end
// its own.
const terminateOwn = "SELECT pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid())"

// Holds reports whether an SQL condition is true.
//
// The result travels as the number of rows of an Exec without arguments. That
// is the one form that no driver prepares. Behind a transaction pooler a
// prepared statement may belong to another client.
func Holds(ctx context.Context, conn *sql.Conn, condition string) (bool, error) {
	n, err := rows(ctx, conn, "SELECT 1 WHERE "+condition)
	return n == 1, err
}

// rows returns the number of rows of query.
func rows(ctx context.Context, conn *sql.Conn, query string) (int64, error) {
	result, err := conn.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// IsGenuine reports whether version() says that conn is of PostgreSQL itself.
// The error is the driver's. A database that does not understand the question
// fails the statement.
func IsGenuine(ctx context.Context, conn *sql.Conn) (bool, error) {
	// The cast is PostgreSQL's own: MySQL understands the rest of it.
	const question = "pg_catalog.version()::text LIKE 'PostgreSQL %' AND pg_catalog.version() NOT LIKE '%-YB-%' AND pg_catalog.version() NOT LIKE '%Redshift%'"
	genuine, err := Holds(ctx, conn, question)
	if errcode.SQLState(err) == errcode.FailedTransaction { // which the connection's last user has left
		if err = Tidy(ctx, conn); err == nil {
			genuine, err = Holds(ctx, conn, question)
		}
	}
	return genuine, err
}
