package postgres

import "github.com/latchkey-go/latchkey/internal/dialect"

// lockTableQuery leaves out the locks that are elsewhere: those of the fast
// path, and those of serializable transactions. It touches no shared catalog,
// for which a full lock table has no room.
const lockTableQuery = `SELECT pg_catalog.pg_backend_pid(),
	pg_catalog.current_setting('max_locks_per_transaction')::bigint * (pg_catalog.current_setting('max_connections')::bigint + pg_catalog.current_setting('max_prepared_transactions')::bigint),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE NOT fastpath AND mode <> 'SIReadLock'),
	(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_activity(NULL) WHERE application_name LIKE '%latchkey')`

// LockTable implements dialect.Surveyor.
func (s *session) LockTable() (t dialect.LockTable, err error) {
	var pid int64
	err = s.conn.QueryRowContext(s.statements.ctx, lockTableQuery).Scan(&pid, &t.Size, &t.Used, &t.Sessions)
	switch {
	case err != nil:
		return dialect.LockTable{}, dialect.Fail(err)
	case pid != s.pid:
		return dialect.LockTable{}, errOtherProcess
	}
	return t, nil
}
