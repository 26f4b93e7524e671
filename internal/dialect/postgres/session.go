package postgres

import (
	"database/sql"
	"database/sql/driver"
	"math"
	"net"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A session is a dialect.Session on a connection of its own.
//
// Invariant: each response is accepted only from the server process pid. So a
// pooler that moves the session to another process is noticed.
type session struct {
	conn    *sql.Conn
	pid     int64 // of the server process: every answer must come from it
	process dialect.Process
	socket  net.Conn // nil where it cannot be reached
	abort   func()   // ends a call in flight where the socket cannot be reached, if the driver heeds its context

	statements statements
	batch      *dialect.Batch  // of the exchange under way
	exchangeOn func(any) error // exchangeRaw, made once
}

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	s.batch = b
	err := s.conn.Raw(s.exchangeOn)
	s.batch = nil
	return advisory(err)
}

// exchangeRaw is Exchange on the driver's connection.
func (s *session) exchangeRaw(c any) error {
	f := formOf(s.batch)
	row, err := s.statements.exchange(c.(driver.Conn), s.batch, f)
	if errcode.SQLState(err) == errcode.InvalidStatementName {
		return errReset
	}
	if err != nil {
		if errcode.SQLState(err) == errcode.DuplicateStatement {
			return errUnclean
		}
		return err
	}
	pid, err := intOf(row[0])
	if err != nil {
		return err
	}
	if pid != s.pid {
		return errOtherProcess
	}
	return readResponse(s.batch, f, row[1:])
}

// row scans the one row of query, whose first column is the id of the server
// process. dest are for the others. The error is the driver's or a *Failure.
func (s *session) row(query string, args []any, dest ...any) error {
	var pid int64
	err := s.conn.QueryRowContext(s.statements.ctx, query, args...).Scan(append([]any{&pid}, dest...)...)
	if err == nil && pid != s.pid {
		err = errOtherProcess
	}
	return err
}

// heldQuery lists the session's advisory locks. Secret checks are among them,
// as shared locks.
//
// A key of the bigint space has its halves in classid and objid, with objsubid
// 1. A key of two integers has them there with objsubid 2. All locks of a
// session are of its own database.
//
// The query touches no shared catalog: to lock one needs room in the server's
// lock table, which may be full.
const heldQuery = `SELECT pg_catalog.pg_backend_pid(), coalesce(pg_catalog.string_agg(
	(objsubid - 1 + CASE mode WHEN 'ShareLock' THEN 2 ELSE 0 END)::text || ':' || ((classid::bigint << 32) | objid::bigint)::text, ','), '')
	FROM pg_catalog.pg_locks
	WHERE locktype = 'advisory' AND pid = pg_catalog.pg_backend_pid() AND granted`

// Held implements dialect.Session.
func (s *session) Held() ([]dialect.Key, error) {
	var list string
	if err := s.row(heldQuery, nil, &list); err != nil {
		return nil, dialect.Fail(err)
	}
	return ParseKeys(list)
}

// ReservedToken returns none, since a token costs a flush of the write-ahead
// log.
func (s *session) ReservedToken() (dialect.Token, bool) { return dialect.Token{}, false }

// Room has no limit.
func (s *session) Room() int { return math.MaxInt }

// Socket implements dialect.Session.
func (s *session) Socket() net.Conn { return s.socket }

// Abort implements dialect.Session.
func (s *session) Abort() {
	s.abort()
	if s.socket != nil {
		_ = s.socket.Close()
	}
}

// Destroy implements dialect.Session.
func (s *session) Destroy() {
	dbconn.Destroy(s.conn, terminateOwn)
	s.abort()
}

var errOtherProcess = &dialect.Failure{Kind: dialect.NotExclusive, Reason: "another server process answered than before: " + behindPooler}

// errReset is the failure of a session whose prepared statements are gone. Its
// locks may be gone with them, as after DISCARD ALL.
var errReset = &dialect.Failure{Kind: dialect.NotExclusive, Reason: "the prepared statements of the session are gone: something has reset the session, or " + behindPooler}

// errUnclean is the failure of a session whose server process has a prepared
// statement of a name that the driver was about to use. It would fail for ever.
var errUnclean = &dialect.Failure{Kind: dialect.Gone, Reason: "the server process has prepared statements of another client: a pooler has handed it on without a reset", State: errcode.DuplicateStatement}
