package postgres

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// IsNeighbourXact reports whether p, the server process of a session of locks, is
// in the database of tx. Then their keys exclude each other. A role that may not
// see when p started goes by its PID and its name.
//
// The transaction of the caller can be used as before also if the question fails.
// IsNeighbourXact returns false then.
func IsNeighbourXact(ctx context.Context, tx dialect.Execer, p dialect.Process) bool {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT latchkey"); err != nil {
		return false
	}
	var n int64
	result, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT FROM pg_catalog.pg_stat_get_activity(%d) AS a"+
		" WHERE a.datid = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))"+
		" AND coalesce(%s = %d, pg_catalog.right(a.application_name, 8) = 'latchkey')", p.PID, startOf, p.Start))
	if err == nil {
		n, err = result.RowsAffected()
	}
	end := "RELEASE SAVEPOINT latchkey"
	if err != nil {
		end = "ROLLBACK TO SAVEPOINT latchkey; " + end
	}
	_, endErr := tx.ExecContext(ctx, end)
	return n == 1 && err == nil && endErr == nil
}
