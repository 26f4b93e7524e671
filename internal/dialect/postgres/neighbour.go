package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// IsNeighbour reports whether p, the server process of a session of locks, is in
// the database of conn. Then their keys exclude each other.
//
// A role that may not see when p started goes by its PID and its name.
func IsNeighbour(ctx context.Context, conn *sql.Conn, p dialect.Process) (bool, error) {
	n, err := dbconn.UnlessClosed(func() (int64, error) { return rows(ctx, conn, isNeighbour(p)) })
	return n == 1, dialect.Fail(err)
}

// IsNeighbourXact is IsNeighbour in a transaction of the caller, which can be used
// as before also if the question fails. It returns false then.
func IsNeighbourXact(ctx context.Context, tx dialect.Execer, p dialect.Process) bool {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT latchkey"); err != nil {
		return false
	}
	var n int64
	result, err := tx.ExecContext(ctx, isNeighbour(p))
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

// IsNeighbour is IsNeighbour on the connection of c. If the role may not ask, it
// returns false. A failed question would abort a transaction of the owner.
func (c *Conn) IsNeighbour(p dialect.Process) (bool, error) {
	may, err := c.rows(context.Background(), mayAsk)
	if err != nil || may == 0 {
		return false, dialect.Fail(err)
	}
	return IsNeighbour(context.Background(), c.conn, p)
}

// mayAsk has a row if the role may use what isNeighbour needs.
const mayAsk = "SELECT WHERE pg_catalog.has_function_privilege(pg_catalog.to_regprocedure('pg_catalog.pg_stat_get_activity(integer)'), 'EXECUTE')"

// PID returns the id of the server process, once a call has found it. It is 0
// before.
func (c *Conn) PID() int64 { return c.pid }

// ServerPID returns the id of conn's server process without asking for it, or 0
// if the driver does not show it. Behind a pooler it is of no process.
func ServerPID(conn *sql.Conn) int64 {
	pid, _ := dbconn.HandshakePID(conn)
	return pid
}

func isNeighbour(p dialect.Process) string {
	return fmt.Sprintf("SELECT FROM pg_catalog.pg_stat_get_activity(%d) AS a"+
		" WHERE a.datid = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))"+
		" AND coalesce(%s = %d, pg_catalog.right(a.application_name, 8) = 'latchkey')", p.PID, startOf, p.Start)
}
