// Package postgres implements the engine's sessions with PostgreSQL's advisory
// locks.
//
// It also has what no other kind of database offers. These are locks on a
// connection or a transaction of the caller, the registry of locks for people,
// and the inspection of all advisory locks.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Dialect locks with session-level advisory locks, on one connection of a
// pool. It needs PostgreSQL 14 for idle_session_timeout.
type Dialect struct {
	AnyVersionString bool // do not ask that version() says PostgreSQL
}

// Traits says that many locks are better spread over several sessions. At the
// end of each statement the server walks through all locks that the session
// holds.
func (Dialect) Traits() dialect.Traits {
	return dialect.Traits{Name: "postgres", Lease: dialect.DefaultLease, HeldPerSession: dialect.HeldPerConnection, CloseTimeout: dialect.ConnectionCloseTimeout, Readers: true, Registers: true, ChecksSecrets: true}
}

// Open takes two connections of db and proves on them that advisory locks
// exclude. Then it gives one back and sets the other up as the session.
//
// It changes nothing on a connection before the proof. Behind a transaction
// pooler a SET would reach the session of another client.
func (d Dialect) Open(ctx context.Context, db *sql.DB, set dialect.Settings) (dialect.Session, error) {
	conn, pid, err := d.proven(ctx, db, set)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn.Conn, pid: pid, socket: conn.Socket, abort: func() {}, ctx: context.Background(), prepared: map[form]driver.Stmt{}}
	s.exchangeOn = s.exchange
	if err = conn.SetUp(ctx, set.Proof, func(ctx context.Context) error { return s.prepare(ctx, set) }); err != nil {
		return nil, err
	}
	if s.socket == nil {
		s.ctx, s.abort = context.WithCancel(s.ctx)
	}
	return s, nil
}

// prepare makes the connection of s a session of locks, and learns what it needs
// to know of it.
func (s *session) prepare(ctx context.Context, set dialect.Settings) (err error) {
	if err = setUp(ctx, s.conn, set); err != nil {
		return err
	}
	s.process, err = processOf(ctx, s.conn, s.pid)
	return err
}

// Prove proves that advisory locks exclude on two connections of db, as Open
// does, and gives both back. It changes nothing on them. Its error is like that
// of Open.
func (d Dialect) Prove(ctx context.Context, db *sql.DB, set dialect.Settings) error {
	conn, _, err := d.proven(ctx, db, set)
	if err != nil {
		return err
	}
	return dialect.Fail(conn.Close())
}

// proven returns a connection of db on which locks exclude others, and the
// process id of its server process.
func (d Dialect) proven(ctx context.Context, db *sql.DB, set dialect.Settings) (conn *dbconn.Taken, pid int64, err error) {
	conn, err = dbconn.Prove(ctx, db, set, terminateOwn, func(pair dbconn.Pair) (err error) {
		p := proof{Pair: pair, anyVersion: d.AnyVersionString}
		pid, err = p.run(ctx)
		switch state := errcode.SQLState(err); state {
		case errcode.InvalidStatementName: // it was prepared on another connection
			return dialect.Refuse(behindPooler)
		case errcode.FeatureNotSupported, errcode.UndefinedFunction:
			return dialect.Refuse("this system lacks the functions that locks of a session need (SQLSTATE " + state + "): pass WithLeaseTable()")
		}
		return advisory(err)
	})
	return conn, pid, err
}

// setUp makes conn a session of locks:
//
//   - It holds no lock at the start.
//   - The server ends it when it has been silent for a lease.
//   - No statement on it takes longer than StatementTimeout.
//   - Settings that an earlier user made for transactions do not apply.
func setUp(ctx context.Context, conn *sql.Conn, set dialect.Settings) error {
	milliseconds := func(n int64) string { return strconv.FormatInt(max(n, 1), 10) }
	lease := milliseconds(set.Lease.Milliseconds())
	settings := []string{
		"'idle_session_timeout', '" + lease + "'",
		"'idle_in_transaction_session_timeout', '" + lease + "'", // it takes over where there is a transaction after all
		"'statement_timeout', '" + milliseconds(set.StatementTimeout.Milliseconds()) + "'",
		"'lock_timeout', '" + milliseconds(set.StatementTimeout.Milliseconds()) + "'",
		"'search_path', 'pg_catalog, pg_temp'", // without pg_temp, a temporary table of the last user's comes first
		"'default_transaction_read_only', 'off'",
		"'default_transaction_isolation', 'read committed'",
		"'default_transaction_deferrable', 'off'",
		"'plan_cache_mode', 'force_generic_plan'", // never plan an exchange anew
		"'jit', 'off'",      // never compile one, which takes longer than to carry it out
		"'work_mem', '4MB'", // the default: with less, to list the server's locks or settings takes a temporary file
		"'application_name', pg_catalog.btrim(pg_catalog.concat_ws(' ', pg_catalog.left(pg_catalog.current_setting('application_name'), 54), 'latchkey'))",
	}
	// A pooled connection may hold locks that its last user forgot: taking one
	// of them would be re-entry, and succeed.
	calls := []string{"pg_catalog.pg_advisory_unlock_all()"}
	for _, s := range settings {
		calls = append(calls, "pg_catalog.set_config("+s+", false)")
	}
	calls = append(calls, cutOff(set.Lease)...)
	// This one ends with the transaction, and so with the statement, if that is
	// in none.
	calls = append(calls, "pg_catalog.set_config('latchkey.transaction', 'open', true)")
	if _, err := conn.ExecContext(ctx, "SELECT "+strings.Join(calls, ", ")); err != nil {
		return err
	}
	switch n, err := rows(ctx, conn, "SELECT FROM pg_catalog.generate_series(1, CASE"+
		" WHEN pg_catalog.current_setting('latchkey.transaction', true) = 'open' THEN 1"+
		" WHEN (SELECT setting FROM pg_catalog.pg_settings WHERE name = 'idle_session_timeout') <> '"+lease+"' THEN 2 ELSE 0 END)"); {
	case err != nil:
		return err
	case n == 1:
		return dialect.Refuse("something keeps a transaction open on each connection of the pool: the server would not free the locks of a silent process in time")
	case n == 2:
		return dialect.Refuse("idle_session_timeout could not be set: the server would not free the locks of a dead process")
	}
	return nil
}

// The largest values that Linux accepts for a socket.
const (
	longestKeepalive = 32767 // seconds
	mostKeepalives   = 127
)

// cutOff returns the calls by which the server ends the session of a client
// that disappears while the server reads a statement. The idle timeout does not
// run then.
//
// The server's kernel probes a silent connection. It ends the connection when
// the client's kernel has been silent for the lease, and never earlier. On a
// Unix socket these settings have no effect.
//
// PostgreSQL 17 and newer also bounds a transaction whose last message is
// missing. StatementTimeout, which is shorter, ends a transaction that is at
// work.
func cutOff(lease time.Duration) []string {
	seconds := int64((lease + time.Second - 1) / time.Second)
	idle := min(max(seconds/2, 1), longestKeepalive)
	interval := min(max(seconds/10, 1), longestKeepalive)
	count := min(max((seconds-idle+interval-1)/interval, 1), mostKeepalives)
	number := func(n int64) string { return "'" + strconv.FormatInt(n, 10) + "'" }
	set := func(name string, n int64) string {
		return "pg_catalog.set_config('" + name + "', " + number(n) + ", false)"
	}
	return []string{
		set("tcp_keepalives_idle", idle),
		set("tcp_keepalives_interval", interval),
		set("tcp_keepalives_count", count), // counts where there is no tcp_user_timeout
		set("tcp_user_timeout", lease.Milliseconds()),
		"CASE WHEN pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 170000 THEN " + set("transaction_timeout", lease.Milliseconds()) + " END",
	}
}
