package postgres

import (
	"context"
	"database/sql"
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
