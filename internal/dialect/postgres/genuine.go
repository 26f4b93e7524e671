package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// isGenuine reports whether version() says that conn is one of PostgreSQL
// itself. Its error is the driver's: a database that does not understand the
// question has an error of a statement.
func IsGenuine(ctx context.Context, conn *sql.Conn) (bool, error) {
	// The cast is PostgreSQL's own: MySQL understands the rest of it.
	const question = "pg_catalog.version()::text LIKE 'PostgreSQL %' AND pg_catalog.version() NOT LIKE '%-YB-%'"
	genuine, err := Holds(ctx, conn, question)
	if errcode.SQLState(err) == errcode.FailedTransaction { // which the connection's last user has left
		if err = Tidy(ctx, conn); err == nil {
			genuine, err = Holds(ctx, conn, question)
		}
	}
	return genuine, err
}
