package postgres

import (
	"context"
	"database/sql"
)

// holds reports whether an SQL condition is true. The answer travels in the
// number of rows of an Exec without arguments, the one form that neither
// driver prepares: behind a transaction pooler a prepared statement may be
// another client's.
func Holds(ctx context.Context, conn *sql.Conn, condition string) (bool, error) {
	n, err := rows(ctx, conn, "SELECT 1 WHERE "+condition)
	return n == 1, err
}

func rows(ctx context.Context, conn *sql.Conn, query string) (int64, error) {
	result, err := conn.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}
