package postgres

import (
	"context"
	"database/sql"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// lockTableQuery leaves out the locks that are elsewhere: those of the fast
// path, and those of serializable transactions. It touches no shared catalog,
// for which a full lock table has no room.
const lockTableQuery = `SELECT pg_catalog.pg_backend_pid(),
	pg_catalog.current_setting('max_locks_per_transaction')::bigint * (pg_catalog.current_setting('max_connections')::bigint + pg_catalog.current_setting('max_prepared_transactions')::bigint),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE NOT fastpath AND mode <> 'SIReadLock'),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_activity(NULL) WHERE application_name LIKE '%latchkey')`

// LockTable implements dialect.Surveyor.
func (s *session) LockTable() (dialect.LockTable, error) {
	t, pid, err := LockTableOf(s.ctx, s.conn)
	if err == nil && pid != s.pid {
		return dialect.LockTable{}, errOtherProcess
	}
	return t, err
}

// LockTableOf reads the lock table of the server of conn, and the id of the
// server process that responded. Its error is a *Failure or that of ctx.
func LockTableOf(ctx context.Context, conn *sql.Conn) (t dialect.LockTable, pid int64, err error) {
	if err := conn.QueryRowContext(ctx, lockTableQuery).Scan(&pid, &t.Size, &t.Used, &t.Sessions); err != nil {
		return dialect.LockTable{}, 0, dialect.Fail(err)
	}
	return t, pid, nil
}
