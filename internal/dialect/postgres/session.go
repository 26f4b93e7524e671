package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
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

	ctx      context.Context    //nolint:containedctx // no caller's: see dialect.Session
	prepared map[form]*sql.Stmt // made at first use; they end with the connection
	text     []byte             // memory for the next statement
}

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	f := formOf(b)
	columns, err := s.exchange(f, b)
	switch state := errcode.SQLState(err); {
	case state == errcode.InvalidStatementName:
		return errReset
	case state == errcode.DuplicateStatement:
		return errUnclean
	case errors.Is(err, sql.ErrConnDone): // database/sql has tried again on a connection that the driver had found broken
		return dialect.Fail(driver.ErrBadConn)
	case err != nil:
		return advisory(err)
	}
	return readResponse(b, f, columns)
}

// exchange sends the statement for b, which has this form. It returns the
// columns of the response after the first.
//
// Only a statement that was prepared before a reset of the session notices it. So
// that of a heartbeat, which has no part, is prepared before the first lock.
func (s *session) exchange(f form, b *dialect.Batch) (columns []string, err error) {
	for _, needed := range [...]form{0, f} {
		if s.prepared[needed] == nil {
			if s.prepared[needed], err = s.conn.PrepareContext(s.ctx, needed.query()); err != nil {
				return nil, err
			}
		}
	}
	args := s.argsOf(f, b)
	columns = make([]string, len(args))
	var pid int64
	dest := []any{&pid}
	for i := range columns {
		dest = append(dest, &columns[i])
	}
	err = s.prepared[f].QueryRowContext(s.ctx, args...).Scan(dest...)
	if err == nil && pid != s.pid {
		err = errOtherProcess
	}
	return columns, err
}

// argsOf returns the arguments of f in the order of its parts.
func (s *session) argsOf(f form, b *dialect.Batch) (args []any) {
	for _, part := range parts {
		switch {
		case f&part.form == 0:
		case f&single != 0:
			args = append(args, singleKey(b).ID)
		default:
			s.text = part.text(s.text[:0], b)
			args = append(args, string(s.text))
		}
	}
	return args
}

// row scans the one row of query, whose first column is the id of the server
// process. dest are for the others. The error is the driver's or a *Failure.
func (s *session) row(query string, args []any, dest ...any) error {
	var pid int64
	err := s.conn.QueryRowContext(s.ctx, query, args...).Scan(append([]any{&pid}, dest...)...)
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
