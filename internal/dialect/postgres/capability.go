package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
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

// Life is a number for the time from one start of a server to the next. Two
// standbys of one primary have different lives, and so do a server and a copy
// of its disk. Each starts at a moment of its own, to the microsecond.
const Life = "(extract(epoch FROM pg_catalog.pg_postmaster_start_time()) OPERATOR(pg_catalog.*) 1000000)::bigint"

// Here returns the condition Here of a Token for one life of a server.
func Here(life int64) string {
	return fmt.Sprintf("%s OPERATOR(pg_catalog.=) %d", Life, life)
}

// tokenQuery writes an empty message to the write-ahead log and returns its
// place there. The log is on disk before the response comes, whatever
// synchronous_commit says. So a crash cannot give the place to another token.
const tokenQuery = `WITH message AS MATERIALIZED (SELECT pg_catalog.pg_logical_emit_message(true, 'latchkey', '') AS lsn WHERE NOT ` + OnAurora + `)
	SELECT pg_catalog.pg_backend_pid(), pg_catalog.set_config('synchronous_commit', 'local', true), ` + Life + `, system_identifier,
		('x' || pg_catalog.left(pg_catalog.pg_walfile_name(lsn), 8))::bit(32)::bigint, (lsn - '0/0')::bigint
	FROM message, pg_catalog.pg_control_system()`

// Token implements dialect.Session.
func (s *session) Token() (t dialect.Token, err error) {
	var (
		life    int64
		setting string
	)
	err = s.row(tokenQuery, nil, &setting, &life, &t.System, &t.Epoch, &t.Number)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return dialect.Token{}, errAurora
	case errcode.SQLState(err) == errcode.Forbidden:
		return dialect.Token{}, errNoTokens
	case err != nil:
		return dialect.Token{}, dialect.Fail(err)
	}
	t.Here = Here(life)
	return t, nil
}

// OnAurora holds on Aurora, whose log is not PostgreSQL's. A place in it is no
// token. A lease table has a counter instead.
const OnAurora = "EXISTS (SELECT FROM pg_catalog.pg_proc WHERE proname = 'aurora_version' AND proowner = 10::pg_catalog.oid)" // that of the server's own functions

// errNoTokens is the failure of a role that lacks a right to draw tokens.
var errNoTokens = &dialect.Failure{
	Kind: dialect.Statement, State: errcode.Forbidden, Permanent: true,
	Reason: "the role may not call pg_logical_emit_message or pg_control_system, from which the tokens of Fence come: grant it EXECUTE on both: SQLSTATE " + errcode.Forbidden,
}

var errAurora = &dialect.Failure{
	Kind:   dialect.Statement,
	Reason: "on Aurora a place in the write-ahead log is no token for Fence: pass WithLeaseTable(), which counts tokens in a table",
	Cause:  errors.ErrUnsupported,
}
