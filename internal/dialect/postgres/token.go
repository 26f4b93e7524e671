package postgres

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

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
