package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Conn takes session-level locks on a connection that the caller owns and
// uses as well. It carries out one call at a time.
//
// Each step is an Exec, which database/sql carries out as a whole. The rows of
// a query stay open between two of its locks, so a query of the owner could
// come in between.
//
// Conn prepares nothing on the connection, which may go back to a pool.
type Conn struct {
	conn *sql.Conn
	pid  int64 // of the server process that answered first; 0: none has
}

// OnConn returns a Conn for conn. It proves nothing.
func OnConn(conn *sql.Conn) *Conn { return &Conn{conn: conn} }

// Try takes key and reports whether it was free. After an error it has not
// taken key. Unless the session survives the error, all locks of the session
// are lost.
func (c *Conn) Try(key dialect.Key) (bool, error) {
	ok, err := c.call("pg_try_advisory_lock", key)
	if err != nil && dialect.Survives(err) {
		// It may have been taken before the statement failed.
		if _, unlockErr := c.call("pg_advisory_unlock", key); unlockErr != nil {
			return false, unlockErr
		}
	}
	return ok, err
}

// Release gives key back and reports whether it was held.
func (c *Conn) Release(key dialect.Key) (bool, error) {
	ok, err := c.call("pg_advisory_unlock", key)
	if err != nil && dialect.Survives(err) {
		return c.call("pg_advisory_unlock", key)
	}
	return ok, err
}

// Destroy closes the connection, which ends all its locks.
func (c *Conn) Destroy() { dbconn.Destroy(c.conn, terminateOwn) }

// call returns the result of an advisory lock function for key. It fails if
// another server process carries it out than before.
func (c *Conn) call(name string, key dialect.Key) (bool, error) {
	// No context of a caller reaches the driver: cancelling the statement would
	// end the session and every lock on it.
	ctx := context.Background()
	if c.pid == 0 {
		pid, err := serverPID(func(query string) (int64, error) { return c.rows(ctx, query) })
		if err != nil {
			return false, advisory(err)
		}
		c.pid = pid
	}
	n, err := c.rows(ctx, fmt.Sprintf("SELECT FROM pg_catalog.generate_series(1, CASE"+
		" WHEN pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.<>) %d THEN 2 WHEN pg_catalog.%s THEN 1 ELSE 0 END)",
		c.pid, function(name, key)))
	switch {
	case err != nil:
		return false, advisory(err)
	case n == 2:
		return false, errOtherProcess
	}
	return n == 1, nil
}

// rows returns the number of rows of query, or sql.ErrConnDone if the owner
// closes the connection meanwhile.
func (c *Conn) rows(ctx context.Context, query string) (int64, error) {
	return dbconn.UnlessClosed(func() (int64, error) { return rows(ctx, c.conn, query) })
}

// Transaction-level locks must work behind transaction poolers, where a
// prepared statement may belong to another client. So these functions send
// Execs without arguments, which no driver prepares. A key is a number, never a
// name.

// advisory is dialect.Fail for advisory lock functions in a database of unknown
// kind.
func advisory(err error) error {
	if err == nil {
		return nil
	}
	_, isSQLite := errcode.SQLite(err)
	_, _, isMySQL := errcode.MySQL(err)
	if (isSQLite || isMySQL) && dialect.IsStatement(err) {
		return dialect.Refuse("this is not PostgreSQL, whose advisory locks these are: use a Session (Open)")
	}
	if errcode.SQLState(err) == errcode.Forbidden && errcode.Denied(err) == "" {
		return &dialect.Failure{Kind: dialect.Statement, State: errcode.Forbidden, Permanent: true,
			Reason: "the role may not call a function of advisory locks: grant it EXECUTE on pg_try_advisory_lock, pg_advisory_unlock and the others: SQLSTATE " + errcode.Forbidden}
	}
	return dialect.Fail(err)
}

// Borrow returns a connection of db that is alive, which the caller closes.
func Borrow(ctx context.Context, db *sql.DB) (*sql.Conn, error) { return dbconn.Live(ctx, db) }

// Begin begins a transaction on conn, which lasts no longer than ctx. If the
// driver shows that an earlier user has left one open, Begin ends that first,
// since lib/pq would fail.
func Begin(ctx context.Context, conn *sql.Conn) (*sql.Tx, error) {
	if idle, known := dbconn.IsIdle(conn); known && !idle {
		if err := Tidy(ctx, conn); err != nil {
			return nil, dialect.Fail(err)
		}
	}
	tx, err := conn.BeginTx(ctx, nil)
	return tx, BeginFailure(err)
}

// BeginFailure is dialect.Fail for an error of BEGIN. On a standby lib/pq's
// BEGIN READ WRITE fails.
func BeginFailure(err error) error {
	if errcode.SQLState(err) == errcode.FeatureNotSupported {
		return dialect.Refuse(OnStandby)
	}
	return dialect.Fail(err)
}

// TryXact takes key until tx ends, and reports whether it was free.
func TryXact(ctx context.Context, tx dialect.Execer, key dialect.Key) (bool, error) {
	// The answer is the number of rows: 0 held, 1 taken, 2 a standby, which
	// would grant on its own.
	result, err := tx.ExecContext(ctx, "SELECT FROM pg_catalog.generate_series(1, CASE"+
		" WHEN pg_catalog.pg_is_in_recovery() THEN 2"+
		" WHEN pg_catalog."+function("pg_try_advisory_xact_lock", key)+" THEN 1 ELSE 0 END)")
	if err != nil {
		return false, advisory(err)
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return false, advisory(err)
	case n == 2:
		return false, dialect.Refuse(OnStandby)
	default:
		return n == 1, nil
	}
}

// LockXact waits for key for at most wait, and reports whether it has taken it.
// If it has not, tx can be used as before. lock_timeout is unchanged
// afterwards.
func LockXact(ctx context.Context, tx dialect.Execer, key dialect.Key, wait time.Duration) (bool, error) {
	// lock_timeout counts whole milliseconds, and 0 is for ever.
	timeout := max(wait/time.Millisecond, 0)
	if wait%time.Millisecond > 0 {
		timeout++
	}
	timeout = min(max(timeout, 1), math.MaxInt32)
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SAVEPOINT latchkey;"+
		" SELECT pg_catalog.set_config('latchkey.lock_timeout', pg_catalog.current_setting('lock_timeout'), true);"+
		" SELECT pg_catalog.set_config('lock_timeout', '%d', true);"+
		" SELECT pg_catalog.%s;"+
		" SELECT pg_catalog.set_config('lock_timeout', pg_catalog.current_setting('latchkey.lock_timeout'), true);"+
		" RELEASE SAVEPOINT latchkey", timeout, function("pg_advisory_xact_lock", key)))
	if err == nil {
		return true, nil
	}
	state := errcode.SQLState(err)
	if state == "" || !dialect.Survives(dialect.Fail(err)) || ctx.Err() != nil {
		return false, advisory(err)
	}
	// The statement failed inside the savepoint. lock_timeout can fire after
	// the grant: going back to the savepoint releases the lock then.
	if _, rollback := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT latchkey; RELEASE SAVEPOINT latchkey"); rollback != nil {
		return false, advisory(err)
	}
	if state == errcode.LockNotAvailable {
		return false, nil
	}
	return false, advisory(err)
}

// SetIdleTimeout makes the server end the session when tx is idle for so long.
func SetIdleTimeout(ctx context.Context, tx dialect.Execer, idle time.Duration) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL idle_in_transaction_session_timeout = %d", max(idle.Milliseconds(), 1)))
	return advisory(err)
}

// function returns the call of an advisory lock function for key.
func function(name string, key dialect.Key) string {
	if key.IsShared() {
		name += "_shared"
	}
	if key.Exclusive().Space == dialect.TwoInts {
		return fmt.Sprintf("%s((%d)::int, (%d)::int)", name, int32(key.ID>>32), int32(key.ID))
	}
	return fmt.Sprintf("%s((%d)::bigint)", name, key.ID)
}

// IsNeighbourXact reports whether p, the server process of a session of locks, is
// in the database of tx. Then their keys exclude each other. A role that may not
// see when p started goes by its PID and its name.
//
// The transaction of the caller can be used as before also if the question fails.
// IsNeighbourXact returns false then.
func IsNeighbourXact(ctx context.Context, tx dialect.Execer, p dialect.Process) bool {
	if _, err := tx.ExecContext(ctx, "SAVEPOINT latchkey"); err != nil {
		return false
	}
	var n int64
	result, err := tx.ExecContext(ctx, fmt.Sprintf("SELECT FROM pg_catalog.pg_stat_get_activity(%d) AS a"+
		" WHERE a.datid = (SELECT datid FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()))"+
		" AND coalesce(%s = %d, pg_catalog.right(a.application_name, 8) = 'latchkey')", p.PID, startOf, p.Start))
	if err == nil {
		n, err = result.RowsAffected()
	}
	end := "RELEASE SAVEPOINT latchkey"
	if err != nil {
		end = "ROLLBACK TO SAVEPOINT latchkey; " + end
	}
	_, endErr := tx.ExecContext(ctx, end)
	return n == 1 && err == nil && endErr == nil
}
