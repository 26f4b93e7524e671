package mysql

import (
	"context"
	"database/sql"
	"net"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A session is a dialect.Session on a connection of its own. No statement on it
// waits: it takes locks and gives them back, and changes no rows. It changes
// rows on other connections, by a sideTx.
//
// Invariant: while the session lives, it has the lock called name, and those of
// the keys in held.
type session struct {
	conn   *sql.Conn
	id     int64    // of the connection: every answer must come from it
	socket net.Conn // nil where it cannot be reached
	names  lockNames
	name   string
	limit  int // of the length of an expression

	pool    dbconn.Pool   // for side transactions
	bound   time.Duration // of a sideTx
	mariadb bool
	server  int64 // identifies the server

	serverName string // an expression of the same, for Token's Here

	text []byte // memory for the next statement
	held map[dialect.Key]struct{}
}

// ask returns the value of an SQL expression. It fails if another connection
// has computed it, or a server that is not the primary any more. The parts of
// the expression are computed from left to right.
func (s *session) ask(ctx context.Context, expression string) (string, error) {
	var (
		row  rowChecks
		text sql.NullString
	)
	if len(expression) > s.limit {
		return "", dialect.ErrTooLong
	}
	err := s.conn.QueryRowContext(ctx, "SELECT "+rowCheckColumns+", "+expression).Scan(&row.id, &row.readOnly, &text)
	if err != nil && errcode.IsTooLarge(err) { // the driver has been told to allow less than we thought
		s.limit = len(expression) / 2
		return "", dialect.ErrTooLong
	}
	if err == nil {
		err = row.pass(s.id)
	}
	if err == nil && !text.Valid {
		err = errInterrupted
	}
	return text.String, err
}

// rowCheckColumns begin every row: which connection it is from, and whether its
// server has become a replica.
const rowCheckColumns = "CONNECTION_ID(), @@global.read_only"

// rowChecks are the values of rowCheckColumns.
type rowChecks struct {
	id       int64
	readOnly string
}

// pass fails if c is not from the connection with id, or from a replica.
func (c rowChecks) pass(id int64) error {
	switch {
	case c.id != id:
		return errOtherConnection
	case isOn(c.readOnly):
		return dialect.Refuse(isReadOnly)
	}
	return nil
}

// Process returns the id of the connection, which KILL takes. The server gives
// it to no later connection until it restarts.
func (s *session) Process() dialect.Process { return dialect.Process{PID: s.id} }

// ReservedToken returns none, since a token costs a flush of the log.
func (s *session) ReservedToken() (dialect.Token, bool) { return dialect.Token{}, false }

// Socket implements dialect.Session.
func (s *session) Socket() net.Conn { return s.socket }

// Abort implements dialect.Session.
func (s *session) Abort() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
	s.pool.Socket.Close()
}

// Destroy implements dialect.Session.
func (s *session) Destroy() { dbconn.Destroy(s.conn, "") }

var (
	// errInterrupted is what is left of some statements that were killed.
	errInterrupted = &dialect.Failure{Kind: dialect.Statement, Reason: "the server computed NULL where it cannot be: the statement was interrupted"}

	errOtherConnection = &dialect.Failure{Kind: dialect.NotExclusive, Reason: "another of the server's connections answered than before: " + behindProxy}
)
