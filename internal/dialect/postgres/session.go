package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"math"
	"net"
	"strconv"

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

	ctx      context.Context      //nolint:containedctx // no caller's: see dialect.Session
	prepared map[form]driver.Stmt // made at first use; they end with the connection

	// The exchange under way, and memory for the next one.
	batch      *dialect.Batch
	exchangeOn func(any) error // exchange, made once
	text       []byte
	values     [1 + 4]driver.Value // a column for each part of a form, after the first
	columns    [4]string
}

// Exchange implements dialect.Session.
//
// It uses the driver's own connection. database/sql would do the same for a
// connection that many goroutines share, with 14 more allocations a statement.
func (s *session) Exchange(b *dialect.Batch) error {
	s.batch = b
	err := s.conn.Raw(s.exchangeOn)
	s.batch = nil
	switch errcode.SQLState(err) {
	case errcode.InvalidStatementName:
		return errReset
	case errcode.DuplicateStatement:
		return errUnclean
	}
	return advisory(err)
}

// exchange sends the statement for s.batch on c, and reads its response.
//
// Only a statement that was prepared before a reset of the session notices it. So
// that of a heartbeat, which has no part, is prepared before the first lock.
func (s *session) exchange(c any) error {
	f := formOf(s.batch)
	for _, needed := range [...]form{0, f} {
		if s.prepared[needed] != nil {
			continue
		}
		stmt, err := prepare(s.ctx, c.(driver.Conn), needed.query())
		if err != nil {
			return err
		}
		s.prepared[needed] = stmt
	}
	args := s.argsOf(f, s.batch)
	rows, err := query(s.ctx, s.prepared[f], args)
	if err != nil {
		return err
	}
	values, columns := s.values[:1+len(args)], s.columns[:len(args)]
	if err = rows.Next(values); errors.Is(err, io.EOF) {
		err = dialect.ErrNonsense
	}
	for i := range columns { // before Close, since they may be the driver's memory
		columns[i] = textOf(values[1+i])
	}
	if closeErr := rows.Close(); err == nil {
		err = closeErr
	}
	switch {
	case err != nil:
		return err
	case values[0] != driver.Value(s.pid) && textOf(values[0]) != strconv.FormatInt(s.pid, 10):
		return errOtherProcess
	}
	return readResponse(s.batch, f, columns)
}

// argsOf returns the arguments of f in the order of its parts. The slice is new
// each time, since a driver's wrapper may keep it for its traces.
func (s *session) argsOf(f form, b *dialect.Batch) []driver.NamedValue {
	args := make([]driver.NamedValue, 0, len(parts))
	for _, part := range parts {
		arg := driver.NamedValue{Ordinal: len(args) + 1}
		switch {
		case f&part.form == 0:
			continue
		case f&single != 0:
			arg.Value = singleKey(b).ID
		default:
			s.text = part.text(s.text[:0], b, f)
			arg.Value = string(s.text)
		}
		args = append(args, arg)
	}
	return args
}

func prepare(ctx context.Context, conn driver.Conn, statement string) (driver.Stmt, error) {
	if c, ok := conn.(driver.ConnPrepareContext); ok {
		return c.PrepareContext(ctx, statement)
	}
	return conn.Prepare(statement)
}

func query(ctx context.Context, stmt driver.Stmt, args []driver.NamedValue) (driver.Rows, error) {
	if stmt, ok := stmt.(driver.StmtQueryContext); ok {
		return stmt.QueryContext(ctx, args)
	}
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	//lint:ignore SA1019 what a driver without contexts has
	return stmt.Query(values)
}

// textOf returns a column as text, as some drivers give it. That of NULL is "".
func textOf(column driver.Value) string {
	switch column := column.(type) {
	case string:
		return column
	case []byte:
		return string(column)
	case bool:
		return strconv.FormatBool(column)
	case int64:
		return strconv.FormatInt(column, 10)
	}
	return ""
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
	(objsubid - 1 + CASE mode WHEN 'ShareLock' THEN 2 ELSE 0 END)::text || ',' || ((classid::bigint << 32) | objid::bigint)::text, ','), '')
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
