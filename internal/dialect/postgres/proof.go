package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// A proof shows that session-level advisory locks on session exclude other
// connections to the same database. Otherwise it says what to change.
//
// It sends nothing but Exec without arguments. So it prepares and SETs nothing,
// and does no harm behind a transaction pooler. It names the schema of each
// function and operator, since the search_path may have another one of the same
// name.
type proof struct {
	session, witness *sql.Conn
	timeout          time.Duration // for each question
	anyVersion       bool          // of PostgreSQL.AnyVersionString
}

// run returns the process id of session's server process.
func (p *proof) run(ctx context.Context) (pid int64, err error) {
	for _, conn := range []*sql.Conn{p.session, p.witness} {
		_, err := dbconn.Within(ctx, p.timeout, func(ctx context.Context) (struct{}, error) { return struct{}{}, Tidy(ctx, conn) })
		if err != nil {
			return 0, err
		}
	}
	if err := p.server(ctx); err != nil {
		return 0, err
	}
	if pid, err = p.ownProcesses(ctx); err != nil {
		return 0, err
	}
	return pid, p.exclusion(ctx)
}

// server checks that the server is one whose locks count.
func (p *proof) server(ctx context.Context) error {
	demands := []struct{ condition, otherwise string }{
		{"pg_catalog.version() OPERATOR(pg_catalog.~~) 'PostgreSQL %' AND pg_catalog.version() OPERATOR(pg_catalog.!~~) '%-YB-%'",
			"this is not PostgreSQL by its version(), and what merely speaks its protocol often grants every lock: pass WithDialect(sqllock.PostgreSQL) only for a system known to implement session-level advisory locks"},
		{"pg_catalog.current_setting('server_version_num')::int OPERATOR(pg_catalog.>=) 140000",
			"PostgreSQL 14 or newer is needed: older servers cannot free the locks of a dead process (idle_session_timeout)"},
		{"NOT pg_catalog.pg_is_in_recovery()",
			OnStandby},
	}
	if p.anyVersion {
		demands = demands[1:]
	}
	for _, d := range demands {
		ok, err := p.ask(ctx, p.session, d.condition)
		if err != nil {
			return err
		}
		if !ok {
			return dialect.Refuse(d.otherwise)
		}
	}
	return nil
}

// OnStandby is the reason to reject a standby.
const OnStandby = "this server is a standby, which grants locks on its own: connect to the primary (target_session_attrs=read-write)"

// rounds is how often ownProcesses looks. Eight rounds found 900 poolers of
// 900. One round missed up to 12 of 100.
const rounds = 8

// behindPooler is the reason to reject a transaction pooler.
const behindPooler = "a transaction pooler (PgBouncer or the like) is between, which moves a session from one server process to another: connect to the database itself or through a pool in session mode, or pass WithLeaseTable(), or use PerTx"

// IsBehindPooler reports whether err is the refusal of a transaction pooler.
func IsBehindPooler(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && strings.HasSuffix(failure.Reason, behindPooler)
}

// ownProcesses checks that each connection keeps a server process of its own.
// Behind a transaction pooler, the transaction of a second client takes the
// process that the first client was on.
//
// If the driver shows the process id of the handshake, and it is the right one,
// then nothing is between. One round is enough then.
func (p *proof) ownProcesses(ctx context.Context) (int64, error) {
	n := rounds
	handshake, known := dbconn.HandshakePID(p.session)
	if known {
		direct, err := p.ask(ctx, p.session, onProcess(handshake))
		if err != nil {
			return 0, err
		}
		if direct {
			n = 1
		}
	}
	pid, err := p.pid(ctx, p.session)
	if err != nil {
		return 0, err
	}
	for range n {
		if err := p.round(ctx, pid); err != nil {
			return 0, err
		}
	}
	return pid, nil
}

// round has the witness open a transaction, which occupies a server process. It
// checks that session has another process, the same as before.
//
// A pooler with a single server connection cannot serve session then. So
// silence means a pooler.
func (p *proof) round(ctx context.Context, pid int64) error {
	return p.inTransaction(ctx, func() error {
		shared, err := p.ask(ctx, p.witness, onProcess(pid))
		if err != nil {
			return err
		}
		kept, err := p.ask(ctx, p.session, onProcess(pid))
		if errors.Is(err, dbconn.ErrSilence) {
			return dialect.Refuse(fmt.Sprintf("no answer within %v while another connection was in a transaction: %s", p.timeout, behindPooler))
		}
		if err == nil && (shared || !kept) {
			err = dialect.Refuse(behindPooler)
		}
		return err
	})
}

// inTransaction calls f while the witness is in a transaction.
func (p *proof) inTransaction(ctx context.Context, f func() error) error {
	if _, err := p.rows(ctx, p.witness, "BEGIN"); err != nil {
		return err
	}
	err := f()
	if _, rollback := p.rows(ctx, p.witness, "ROLLBACK"); err == nil {
		err = rollback
	}
	return err
}

// exclusion takes one random key on both connections. A system whose advisory
// functions do nothing grants it twice.
func (p *proof) exclusion(ctx context.Context) error {
	key := strconv.FormatInt(rand.Int64(), 10)
	steps := []struct {
		conn *sql.Conn
		call string
		want bool
	}{
		{p.session, "pg_try_advisory_lock", true},
		{p.witness, "pg_try_advisory_lock", false},
		{p.session, "pg_advisory_unlock", true},
		{p.witness, "pg_try_advisory_lock", true},
		{p.witness, "pg_advisory_unlock", true},
	}
	for _, step := range steps {
		got, err := p.ask(ctx, step.conn, "pg_catalog."+step.call+"("+key+"::bigint)")
		if err != nil {
			return err
		}
		if got != step.want {
			return dialect.Refuse("a lock taken on one connection did not exclude another: the server does not implement session-level advisory locks, or the pool's connections do not reach one database")
		}
	}
	return nil
}

// pid returns the process id of conn's server process.
func (p *proof) pid(ctx context.Context, conn *sql.Conn) (int64, error) {
	return serverPID(func(query string) (int64, error) { return p.rows(ctx, conn, query) })
}

// pidBits splits a process id into two numbers of rows. Linux gives ids of at
// most 22 bits, so both numbers are small.
const pidBits = 11

// serverPID reads the id of the server process without a result set. rows sends
// a query and counts its rows.
func serverPID(rows func(query string) (int64, error)) (int64, error) {
	low, err := rows(fmt.Sprintf("SELECT FROM pg_catalog.generate_series(1, pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.&) %d)", 1<<pidBits-1))
	if err != nil {
		return 0, err
	}
	high, err := rows(fmt.Sprintf("SELECT FROM pg_catalog.generate_series(1, pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.>>) %d)", pidBits))
	if err != nil {
		return 0, err
	}
	return high<<pidBits | low, nil
}

// onProcess is the condition that a server process carries out the statement.
func onProcess(pid int64) string {
	return "pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) " + strconv.FormatInt(pid, 10)
}

// ask reports whether a condition is true, within the proof's timeout.
func (p *proof) ask(ctx context.Context, conn *sql.Conn, condition string) (bool, error) {
	n, err := p.rows(ctx, conn, "SELECT 1 WHERE "+condition)
	return n == 1, err
}

// rows returns the number of rows of query, within the proof's timeout.
func (p *proof) rows(ctx context.Context, conn *sql.Conn, query string) (int64, error) {
	return dbconn.Within(ctx, p.timeout, func(ctx context.Context) (int64, error) { return rows(ctx, conn, query) })
}
