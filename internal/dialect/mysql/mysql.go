package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// MySQL locks with GET_LOCK, on one connection of a pool, in MySQL and MariaDB.
type Dialect struct{}

// Traits says that locks are better spread over several sessions: MariaDB looks through all
// that a session holds for each lock that it takes, twice as dear at 2,000 as at none.
func (Dialect) Traits() dialect.Traits {
	return dialect.Traits{Lease: dialect.DefaultLease, Spread: true, CloseTimeout: dialect.ConnectionCloseTimeout}
}

// Open takes two connections of db, proves on them that locks exclude (see
// mysqlProof), gives one back and sets the other up as the session.
//
// Nothing is SET before the proof: behind a proxy it would reach another client's
// session.
func (Dialect) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, dialect.Misconfigured("the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more")
	}
	conn, err := dbconn.Take(ctx, db, set.Socket, "")
	if err != nil {
		return nil, dialect.Fail(err)
	}
	witness, err := dbconn.Take(ctx, db, set.Socket, "")
	if err != nil {
		conn.Discard()
		return nil, dialect.Fail(err)
	}
	p := proof{session: conn.Conn, witness: witness.Conn, timeout: set.Proof}
	server, err := p.run(ctx)
	if err == nil {
		err = witness.Close() // clean: it goes back to the pool
	} else {
		witness.Discard()
	}
	s := &session{
		conn: conn.Conn, socket: conn.Socket, id: p.id, held: map[dialect.Key]struct{}{}, secrets: map[dialect.SecretCheck]struct{}{},
		pool: dbconn.Pool{DB: db, Find: set.Socket}, bound: sideTxBound(set),
	}
	if err == nil {
		s.mariadb, s.server, s.serverName = server.mariadb, server.identity(), server.name()
		s.names, s.limit = newLockNames(server.database), server.longest()
		s.name = s.names.ofSession(rand.Uint64()) //nolint:gosec // a name, not a secret
		_, err = dbconn.Within(ctx, set.Proof, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, s.setUp(ctx, server, set)
		})
	}
	if err != nil {
		conn.Discard()
		return nil, dialect.Fail(err)
	}
	return s, nil
}

// mysqlNames makes the names of locks: of ASCII, as long as each other, and shorter than MySQL's
// limit of 64. GET_LOCK's names are the whole server's, so a hash of the database's
// name is in them.
type lockNames struct{ prefix string }

func newLockNames(database []byte) lockNames {
	sum := sha256.Sum256(database)
	return lockNames{"latchkey." + hex.EncodeToString(sum[:4]) + "."}
}

// appendName appends the name of key's lock, in quotes.
func (n lockNames) appendName(text []byte, key dialect.Key) []byte {
	text = append(text, '\'')
	text = append(text, n.prefix...)
	text = append(text, '0'+byte(key.Space), '.')
	id := uint64(key.ID) //nolint:gosec // its bits
	for shift := 60; shift >= 0; shift -= 4 {
		text = append(text, "0123456789abcdef"[id>>shift&0xf])
	}
	return append(text, '\'')
}

// ofSession is the name of the lock that says that a session lives.
func (n lockNames) ofSession(id uint64) string { return fmt.Sprintf("%ss.%016x", n.prefix, id) }

// mysqlSession is a Session on one connection of its own, on which no statement waits: it
// takes locks and gives them back, and changes no rows. Those it changes on others (see errand).
//
// Invariant: while the session lives it has the lock called name, and every key that it may have
// taken is in held.
type session struct {
	conn   *sql.Conn
	id     int64    // of the connection: every answer must come from it
	socket net.Conn // nil where it cannot be reached
	names  lockNames
	name   string
	limit  int // of an expression's length

	pool    dbconn.Pool   // for errands
	bound   time.Duration // of an errand
	mariadb bool
	server  int64 // says which one

	serverName string // an expression of the same, for Token's Here

	text    []byte // memory for the next statement
	held    map[dialect.Key]struct{}
	secrets map[dialect.SecretCheck]struct{} // those that may be in the table

	doubtful []dialect.SecretCheck // of these, those of calls that failed: to be given back
	settled  time.Time             // when that was last tried
}

// setUp makes the connection a session of locks: it starts with none but its own, the
// server ends it when it is silent for a lease and for no other reason, no statement on it takes for ever, and
// what the user has set for others' sake does not change ours.
func (s *session) setUp(ctx context.Context, server server, set dialect.Settings) error {
	lease := wholeSeconds(set.Lease)
	wait := max(int64(set.StatementTimeout/time.Second), 1)
	limit := fmt.Sprintf("max_execution_time = %d", max(set.StatementTimeout.Milliseconds(), 1))
	if server.mariadb {
		limit = fmt.Sprintf("max_statement_time = %.3f, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0,"+
			" idle_write_transaction_timeout = 0", max(set.StatementTimeout.Seconds(), 0.001))
	}
	_, err := s.conn.ExecContext(ctx, fmt.Sprintf("SET SESSION wait_timeout = %d, net_read_timeout = %d, net_write_timeout = %d,"+
		" lock_wait_timeout = %d, innodb_lock_wait_timeout = %d, %s, time_zone = '+00:00', autocommit = 1,"+
		" sql_mode = '', sql_select_limit = 18446744073709551615, sql_safe_updates = 0",
		lease, lease, lease, wait, wait, limit))
	if err != nil {
		return err
	}
	// A pooled connection may hold locks that its last user forgot: taking one
	// of them would be re-entry, and succeed.
	got, err := s.ask(ctx, "CONCAT(@@session.wait_timeout, ' ', @@session.autocommit = 1, ' ', RELEASE_ALL_LOCKS() >= 0, ' ', GET_LOCK('"+s.name+"', 0))")
	if want := strconv.FormatInt(lease, 10) + " 1 1 1"; err == nil && got != want {
		err = dialect.Refuse("wait_timeout could not be set, or the connection's locks not be given back: the server would not free the locks of a dead process")
	}
	return err
}

// wholeSeconds is d in seconds, rounded up.
func wholeSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// ask is the value of an SQL expression, if the session's own connection to a
// server that is still the primary has computed it. Its parts are computed from left to
// right.
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

// mysqlCheckColumns begin every row: whose connection it is, and whether its
// server has become a replica since.
const rowCheckColumns = "CONNECTION_ID(), @@global.read_only"

type rowChecks struct {
	id       int64
	readOnly string
}

func (c rowChecks) pass(id int64) error {
	switch {
	case c.id != id:
		return errOtherConnection
	case isOn(c.readOnly):
		return dialect.Refuse(isReadOnly)
	}
	return nil
}

// ReservedToken has none: a token costs a flush of the log.
func (s *session) ReservedToken() (dialect.Token, bool) { return dialect.Token{}, false }

func (s *session) Socket() net.Conn { return s.socket }

func (s *session) Abort() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
	s.pool.Socket.Close()
}

func (s *session) Destroy() { dbconn.Destroy(s.conn, "") }

var (
	// errInterrupted is what is left of some statements that were killed.
	errInterrupted = &dialect.Failure{Kind: dialect.Statement, Reason: "the server computed NULL where it cannot be: the statement was interrupted"}

	errOtherConnection = &dialect.Failure{Kind: dialect.NotExclusive, Reason: "another of the server's connections answered than before: " + behindProxy}
)
