package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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
