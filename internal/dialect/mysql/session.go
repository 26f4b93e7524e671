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
	if len(expression) > s.limit {
		return "", dialect.ErrTooLong
	}
	var (
		id       int64
		readOnly string
		text     sql.NullString
	)
	err := s.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID(), @@global.read_only, "+expression).Scan(&id, &readOnly, &text)
	switch {
	case err != nil && errcode.IsTooLarge(err): // the driver has been told to allow less than we thought
		s.limit = len(expression) / 2
		return "", dialect.ErrTooLong
	case err != nil:
		return "", err
	case id != s.id:
		return "", errOtherConnection
	case isOn(readOnly):
		return "", dialect.Refuse(isReadOnly)
	case !text.Valid:
		return "", errInterrupted
	}
	return text.String, nil
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
