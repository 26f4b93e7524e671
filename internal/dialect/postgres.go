package dialect

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"math"
	"net"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// PostgreSQL locks with session-level advisory locks, on one connection of a
// pool. It needs version 14 for idle_session_timeout.
type PostgreSQL struct {
	AnyVersionString bool // do not ask that version() says PostgreSQL
}

// Traits says that locks are better spread over several sessions: the server walks through
// all that a session holds at the end of each of its statements.
func (PostgreSQL) Traits() Traits {
	return Traits{Lease: defaultLease, Spread: true, Parting: friendlyEnd, Readers: true, Registers: true}
}

const (
	defaultLease = 10 * time.Second
	friendlyEnd  = 100 * time.Millisecond // of a connection
)

// Open takes two connections of db, proves on them that advisory locks exclude
// (see proof), gives one back and sets the other up as the session.
//
// Nothing is changed on a connection before the proof: behind a transaction
// pooler a SET would reach another client's session.
func (d PostgreSQL) Open(ctx context.Context, db *sql.DB, set Settings) (Session, error) {
	if db.Stats().MaxOpenConnections == 1 {
		return nil, misconfigured("the pool may open one connection only (SetMaxOpenConns), and the proof that locks exclude needs two: allow two or more")
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, Fail(err)
	}
	witness, err := db.Conn(ctx)
	if err != nil {
		discard(conn)
		return nil, Fail(err)
	}
	p := proof{session: conn, witness: witness, patience: set.Proof, anyVersion: d.AnyVersionString}
	pid, err := p.run(ctx)
	if state := SQLState(err); state == featureNotSupported || state == undefinedFunction {
		err = refuse("this system lacks the functions that locks of a session need (SQLSTATE " + state + "): pass WithLeaseTable()")
	}
	err = advisory(err)
	if err == nil {
		err = witness.Close() // clean: it goes back to the pool
	} else {
		discard(witness)
	}
	if err == nil {
		err = setUp(ctx, conn, set)
	}
	if err != nil {
		discard(conn)
		return nil, Fail(err)
	}
	s := &postgresSession{conn: conn, pid: pid, socket: socketOf(conn, set.Socket)}
	s.exchangeOn = s.exchangeRaw
	return s, nil
}

// setUp makes conn a session of locks: it starts with none, the server ends it
// when it is silent for a lease, and no statement on it takes for ever.
func setUp(ctx context.Context, conn *sql.Conn, set Settings) error {
	milliseconds := func(n int64) string { return strconv.FormatInt(max(n, 1), 10) }
	settings := []string{
		"'idle_session_timeout', '" + milliseconds(set.Lease.Milliseconds()) + "'",
		"'statement_timeout', '" + milliseconds(set.StatementTimeout.Milliseconds()) + "'",
		"'lock_timeout', '" + milliseconds(set.StatementTimeout.Milliseconds()) + "'",
		"'search_path', 'pg_catalog'",
		"'plan_cache_mode', 'force_generic_plan'", // never plan an exchange anew
		"'application_name', concat_ws(' ', nullif(left(current_setting('application_name'), 54), ''), 'latchkey')",
	}
	// A pooled connection may hold locks that its last user forgot: taking one
	// of them would be re-entry, and succeed.
	calls := []string{"pg_catalog.pg_advisory_unlock_all()"}
	for _, s := range settings {
		calls = append(calls, "pg_catalog.set_config("+s+", false)")
	}
	if _, err := conn.ExecContext(ctx, "SELECT "+strings.Join(calls, ", ")); err != nil {
		return err
	}
	lease := milliseconds(set.Lease.Milliseconds())
	kept, err := holds(ctx, conn, "(SELECT setting FROM pg_settings WHERE name = 'idle_session_timeout') = '"+lease+"'")
	if err == nil && !kept {
		err = refuse("idle_session_timeout could not be set: the server would not free the locks of a dead process")
	}
	return err
}

// holds reports whether an SQL condition is true. The answer travels in the
// number of rows of an Exec without arguments, the one form that neither
// driver prepares: behind a transaction pooler a prepared statement may be
// another client's.
func holds(ctx context.Context, conn *sql.Conn, condition string) (bool, error) {
	n, err := rows(ctx, conn, "SELECT 1 WHERE "+condition)
	return n == 1, err
}

func rows(ctx context.Context, conn *sql.Conn, query string) (int64, error) {
	result, err := conn.ExecContext(ctx, query)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// destroy closes conn for good: what it holds in the server ends with it. It
// waits for a statement in flight.
func destroy(conn *sql.Conn) {
	_, _ = unlessClosed(func() (int64, error) {
		return 0, conn.Raw(func(any) error { return driver.ErrBadConn })
	})
	_ = conn.Close()
}

// unlessClosed is what call returns, or sql.ErrConnDone if its connection is
// closed at the same moment: database/sql then dereferences nil, in grabConn's
// users, between its check and its lock. The connection's owner may close it
// while our goroutine is at work.
func unlessClosed(call func() (int64, error)) (n int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(runtime.Error); !ok {
				panic(r)
			}
			err = sql.ErrConnDone
		}
	}()
	return call()
}

// discard is destroy that does not wait long.
func discard(conn *sql.Conn) {
	destroyed := make(chan struct{})
	go func() {
		destroy(conn)
		close(destroyed)
	}()
	timer := time.NewTimer(100 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-destroyed:
	case <-timer.C:
	}
}

func refuse(reason string) error { return &Failure{Kind: NotExclusive, Reason: reason} }

// postgresSession is a Session on one connection of its own.
type postgresSession struct {
	conn   *sql.Conn
	pid    int64    // of the server process: every answer must come from it
	socket net.Conn // nil where it cannot be reached

	statements statements
	batch      *Batch          // of the exchange under way
	exchangeOn func(any) error // exchangeRaw, made once
}

func (s *postgresSession) Exchange(b *Batch) error {
	s.batch = b
	err := s.conn.Raw(s.exchangeOn)
	s.batch = nil
	return Fail(err)
}

// exchangeRaw is Exchange on the driver's connection.
func (s *postgresSession) exchangeRaw(c any) error {
	row, f, err := s.statements.exchange(c.(driver.Conn), s.batch)
	if err != nil {
		return err
	}
	pid, err := intOf(row[0])
	if err != nil {
		return err
	}
	if pid != s.pid {
		return errOtherProcess
	}
	return s.batch.answer(f, row[1:])
}

// heldQuery lists the session's advisory locks, its claims among them as readers' locks: in the bigint space the key's
// halves are classid and objid of objsubid 1, in the other of objsubid 2. A
// session's own are all of its own database. It touches no shared catalog: to
// lock one needs room in the server's lock table, which may be what is missing.
const heldQuery = `SELECT pg_backend_pid(), coalesce(string_agg(
	(objsubid - 1 + CASE mode WHEN 'ShareLock' THEN 2 ELSE 0 END)::text || ':' || ((classid::bigint << 32) | objid::bigint)::text, ','), '')
	FROM pg_locks
	WHERE locktype = 'advisory' AND pid = pg_backend_pid() AND granted`

func (s *postgresSession) Held() ([]Key, error) {
	var (
		pid  int64
		list string
	)
	if err := s.conn.QueryRowContext(context.Background(), heldQuery).Scan(&pid, &list); err != nil {
		return nil, Fail(err)
	}
	if pid != s.pid {
		return nil, errOtherProcess
	}
	return parseKeys(list)
}

func parseKey(space, id string) (Key, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || len(space) != 1 || space[0] < '0' || space[0] >= '0'+spaces {
		return Key{}, errNonsense
	}
	return Key{Space: Space(space[0] - '0'), ID: n}, nil
}

// Drawn has none: a token costs a flush of the write-ahead log.
func (s *postgresSession) Drawn() (Token, bool) { return Token{}, false }

func (s *postgresSession) Room() int { return math.MaxInt }

func (s *postgresSession) Socket() net.Conn { return s.socket }

func (s *postgresSession) Abort() {
	if s.socket != nil {
		_ = s.socket.Close()
	}
}

func (s *postgresSession) Destroy() { destroy(s.conn) }

var (
	errOtherProcess = &Failure{Kind: NotExclusive, Reason: "another server process answered than before: " + behindPooler}
	errNonsense     = &Failure{Kind: Gone, Reason: "the server's answer made no sense"}
)
