package dbconn

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"reflect"
	"runtime"
	"time"
)

const (
	// closeTimeout bounds what is sent to a connection before it is closed.
	closeTimeout = time.Second

	// discardTimeout bounds the wait for a statement in flight on a connection
	// that is of no use.
	discardTimeout = 100 * time.Millisecond
)

// Destroy closes conn for good. What it holds in the server ends with it.
// Destroy waits for a statement in flight. last is a statement by which a
// session ends itself, or "". The owner of conn may close it at the same moment.
//
// This is the one way of the kit to destroy a connection.
//
// After driver.ErrBadConn, database/sql closes the driver's connection. That is
// not enough if the driver has a pool of its own, as OpenDBFromPool of pgx has.
// Its Close puts the connection back alive, with its locks and settings. So
// Destroy ends the session first.
func Destroy(conn *sql.Conn, last string) {
	_, _ = UnlessClosed(func() (int64, error) {
		return 0, conn.Raw(func(c any) error {
			endSession(c, last)
			return driver.ErrBadConn
		})
	})
}

// endSession ends the session of c, a driver's connection, whatever Close of c
// does. An unknown driver is sent last.
func endSession(c any, last string) {
	switch inner := unwrap(c); {
	case closePgx(inner):
	case isOf(inner, libpq), isOf(inner, goMySQL):
		if wrapped, ok := inner.(driver.Conn); ok && inner != c {
			_ = wrapped.Close()
		}
	case last != "":
		sendLast(c, last)
	}
}

// closePgx closes the connection below a *stdlib.Conn of pgx v5, and reports
// whether c is one. A pool of pgx notices that and drops the connection.
func closePgx(c any) (closed bool) {
	defer func() {
		if recover() != nil { // a driver that looks like pgx, and is not
			closed = false
		}
	}()
	v := pgxConn(c)
	if !v.IsValid() {
		return false
	}
	conn, ok := reflect.TypeAssert[interface{ Close(context.Context) error }](v)
	if !ok {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	_ = conn.Close(ctx)
	return true
}

// sendLast sends query and ignores the response. Its wait is bounded, since a
// driver may ignore contexts.
func sendLast(c any, query string) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	InTime(closeTimeout, func() {
		if conn, ok := c.(driver.ExecerContext); ok {
			if _, err := conn.ExecContext(ctx, query, nil); err != driver.ErrSkip { //nolint:errorlint // a driver returns it as it is
				return
			}
		}
		conn, ok := c.(driver.Conn)
		if !ok {
			return
		}
		if stmt, err := conn.Prepare(query); err == nil {
			//lint:ignore SA1019 what every driver has
			_, _ = stmt.Exec(nil)
		}
	})
}

// UnlessClosed returns what call returns, or sql.ErrConnDone if the owner of
// its connection closes it at the same moment.
//
// database/sql then dereferences nil between its check and its lock, in the
// callers of grabConn.
func UnlessClosed(call func() (int64, error)) (n int64, err error) {
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
