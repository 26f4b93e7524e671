package postgres

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
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
