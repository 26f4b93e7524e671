package demo

import (
	"context"
	"database/sql"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// freedEvery is how often awaitFreed asks the server.
const freedEvery = 5 * time.Millisecond

// awaitFreed waits until a gateway holds no lock, as PostgreSQL sees it.
func awaitFreed(ctx context.Context, db *sql.DB, application string) error {
	for {
		if held, err := heldBy(ctx, db, application); err != nil || held == 0 {
			return err
		}
		select {
		case <-time.After(freedEvery):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// heldBy counts the locks of a gateway. A Session adds a word of its own to the
// application_name.
func heldBy(ctx context.Context, db *sql.DB, application string) (held int, err error) {
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
		WHERE locktype = 'advisory' AND starts_with(application_name, $1)`, application).Scan(&held)
	return held, err
}
