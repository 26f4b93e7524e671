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

// A check with class c and fingerprint p is the shared advisory lock (c, p). A
// session that holds it is a user of the check.
//
// useSecret takes the check, unless another session has the class with
// another fingerprint. Then it gives back what the session may have. It
// reports whether there is a conflict.
//
// One look at pg_locks decides, before anything is taken. A session that has
// the check does not take it a second time.
const useSecret = `SELECT pg_catalog.pg_backend_pid(), CASE
		WHEN other AND mine THEN pg_catalog.pg_advisory_unlock_shared(c, p)
		WHEN other THEN true
		WHEN mine THEN false
		ELSE NOT pg_catalog.pg_try_advisory_lock_shared(c, p) END
	FROM (SELECT c, p, coalesce(pg_catalog.bool_or(l.objid <> (p::bigint & 4294967295)::oid), false) AS other,
			coalesce(pg_catalog.bool_or(l.objid = (p::bigint & 4294967295)::oid AND l.pid = pg_catalog.pg_backend_pid()), false) AS mine
		FROM (SELECT ($1)::int, ($2)::int) AS secret (c, p) LEFT JOIN pg_catalog.pg_locks AS l
		ON l.locktype = 'advisory' AND l.objsubid = 2 AND l.mode = 'ShareLock' AND l.granted
		AND l.database = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))
		AND l.classid = (c::bigint & 4294967295)::oid
		GROUP BY c, p) AS seen`

// UseSecret implements dialect.SecretChecker. It looks and takes, and then looks
// again. So a session with another secret does not disturb those that have one.
// Of two that come at the same moment, at least one sees the other.
func (s *session) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	for range 2 {
		if err = s.row(useSecret, []any{c.Class, c.Fingerprint}, &conflict); err != nil || conflict {
			break
		}
	}
	return conflict && err == nil, dialect.Fail(err)
}
