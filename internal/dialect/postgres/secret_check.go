package postgres

import "github.com/latchkey-go/latchkey/internal/dialect"

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
