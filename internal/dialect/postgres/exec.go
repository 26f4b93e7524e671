package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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
