package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A proof shows that session-level advisory locks on session exclude other
// connections to the same database. Otherwise it says what to change.
//
// Until it has found out that each connection keeps its server process, it sends
// nothing but Exec without arguments. So it prepares and SETs nothing, and does
// no harm behind a transaction pooler. It names the schema of each function and
// operator, since the search_path may have another one of the same name.
type proof struct {
	dbconn.Pair
	anyVersion bool // of PostgreSQL.AnyVersionString
}

// run returns the process id of session's server process.
func (p *proof) run(ctx context.Context) (pid int64, err error) {
	for _, conn := range []*sql.Conn{p.Session, p.Witness} {
		if err := dbconn.Do(ctx, p.Timeout, func(ctx context.Context) error { return Tidy(ctx, conn) }); err != nil {
			return 0, err
		}
	}
	if err := p.server(ctx); err != nil {
		return 0, err
	}
	if pid, err = p.ownProcesses(ctx); err != nil {
		return 0, err
	}
	return pid, p.exclusion(ctx, pid)
}

// server checks that the server is one whose locks count. One question asks for
// the first demand that is not met.
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
	var unmet strings.Builder
	for i, d := range demands {
		fmt.Fprintf(&unmet, " WHEN (%s) IS NOT TRUE THEN %d", d.condition, i+1)
	}
	n, err := p.number(ctx, p.Session, "CASE"+unmet.String()+" ELSE 0 END")
	if err != nil || n == 0 {
		return err
	}
	return dialect.Refuse(demands[n-1].otherwise)
}

// OnStandby is the reason to reject a standby.
const OnStandby = "this server is a standby, which grants locks on its own: connect to the primary (target_session_attrs=read-write)"

// behindPooler is the reason to reject a transaction pooler.
const behindPooler = "a transaction pooler (PgBouncer or the like) is between, which moves a session from one server process to another: connect to the database itself or through a pool in session mode, or pass WithLeaseTable(), or use PerTx"

// IsBehindPooler reports whether err is the refusal of a transaction pooler.
func IsBehindPooler(err error) bool {
	var failure *dialect.Failure
	return errors.As(err, &failure) && strings.HasSuffix(failure.Reason, behindPooler)
}

// ownProcesses checks that each connection keeps a server process of its own, and
// returns the id of session's.
//
// If the driver shows the process id of the handshake, and it is the right one,
// then nothing is between. One round is enough then.
func (p *proof) ownProcesses(ctx context.Context) (pid int64, err error) {
	rounds := dbconn.Rounds
	pid, direct := dbconn.HandshakePID(p.Session)
	if direct {
		if direct, err = p.ask(ctx, p.Session, onProcess(pid)); err != nil {
			return 0, err
		}
	}
	if direct {
		rounds = 1
	} else if pid, err = serverPID(func(query string) (int64, error) { return p.rows(ctx, p.Session, query) }); err != nil {
		return 0, err
	}
	return pid, p.Apart(ctx, rounds, behindPooler, "ROLLBACK", func(ctx context.Context, conn *sql.Conn) (bool, error) {
		there, err := p.ask(ctx, conn, onProcess(pid))
		return there == (conn == p.Session), err
	})
}

// exclusion takes one random key on both connections. A system whose advisory
// functions do nothing grants it twice. pid is that of session's process.
//
// The session takes the key with a prepared statement, as a Session does. The
// witness sees in pg_locks which process holds it. Then the session takes the
// key again with an Exec, and gives both back. So a pooler that carries out some
// of this on a connection of its own is found.
func (p *proof) exclusion(ctx context.Context, pid int64) error {
	key := rand.Int64()
	if err := p.takePrepared(ctx, pid, key); err != nil {
		return err
	}
	try, unlock := fmt.Sprintf("pg_catalog.pg_try_advisory_lock(%d::bigint)", key), fmt.Sprintf("pg_catalog.pg_advisory_unlock(%d::bigint)", key)
	steps := []struct {
		conn   *sql.Conn
		number string // an SQL expression: 0 if all is well, 1 for lockElsewhere, 2 for notExcluded
	}{
		{p.Witness, "CASE WHEN " + try + " THEN 2 WHEN " + isHeldBy(pid, key) + " THEN 0 ELSE 1 END"},
		{p.Session, "CASE WHEN " + try + " THEN 0 ELSE 1 END"},
		{p.Session, "CASE WHEN NOT " + unlock + " THEN 1 WHEN " + unlock + " THEN 0 ELSE 1 END"},
		{p.Witness, "CASE WHEN " + try + " THEN CASE WHEN " + unlock + " THEN 0 ELSE 1 END ELSE 2 END"},
	}
	for i, step := range steps {
		n, err := p.number(ctx, step.conn, step.number)
		if i == 0 && errcode.SQLState(err) == errcode.Forbidden {
			// The role may not read pg_locks, and its locks exclude like any
			// other's. The server rejected the statement before it took anything.
			n, err = p.number(ctx, step.conn, "CASE WHEN "+try+" THEN 2 ELSE 0 END")
		}
		switch {
		case err != nil:
			return err
		case n == 1:
			return dialect.Refuse(lockElsewhere)
		case n != 0:
			return dialect.Refuse(notExcluded)
		}
	}
	return nil
}

// The reasons to reject what takes locks in a wrong place, or not at all.
const (
	notExcluded   = "a lock taken on one connection did not exclude another: the server does not implement session-level advisory locks, or the pool's connections do not reach one database"
	lockElsewhere = "a lock is held by another server process than that of its session: a pooler or proxy is between, which spreads the statements of a session over several server connections: connect to the database itself or through a pool in session mode, or pass WithLeaseTable() (Pgpool-II needs load_balance_mode = off)"
)

// takePrepared takes a free key on session with a prepared statement. It checks
// that the process pid has carried that out.
func (p *proof) takePrepared(ctx context.Context, pid, key int64) error {
	type response struct {
		pid   int64
		taken bool
	}
	r, err := dbconn.Within(ctx, p.Timeout, func(ctx context.Context) (r response, err error) {
		stmt, err := p.Session.PrepareContext(ctx, "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_try_advisory_lock($1::bigint)")
		if err != nil {
			return r, err
		}
		defer stmt.Close()
		err = stmt.QueryRowContext(ctx, key).Scan(&r.pid, &r.taken)
		return r, err
	})
	switch {
	case err != nil:
		return err
	case !r.taken:
		return dialect.Refuse(notExcluded)
	case r.pid != pid:
		return dialect.Refuse(lockElsewhere)
	}
	return nil
}

// isHeldBy is the condition that the process pid holds the key id.
func isHeldBy(pid, id int64) string {
	return fmt.Sprintf("EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND granted AND pid OPERATOR(pg_catalog.=) %d"+
		" AND objsubid OPERATOR(pg_catalog.=) 1::int2 AND classid OPERATOR(pg_catalog.=) %d::oid AND objid OPERATOR(pg_catalog.=) %d::oid)",
		pid, uint64(id)>>32, uint32(id))
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

// number returns the value of an SQL expression, a small number, within the
// proof's timeout.
func (p *proof) number(ctx context.Context, conn *sql.Conn, expression string) (int64, error) {
	return p.rows(ctx, conn, "SELECT 1 FROM pg_catalog.generate_series(1, "+expression+")")
}

// rows returns the number of rows of query, within the proof's timeout.
func (p *proof) rows(ctx context.Context, conn *sql.Conn, query string) (int64, error) {
	return dbconn.Within(ctx, p.Timeout, func(ctx context.Context) (int64, error) { return rows(ctx, conn, query) })
}
