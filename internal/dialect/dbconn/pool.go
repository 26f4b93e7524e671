package dbconn

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A Pool borrows a connection of a *sql.DB for each statement. One goroutine
// uses it at a time.
type Pool struct {
	DB     *sql.DB
	Find   func(any) net.Conn                     // finds a driver's socket; nil: for known drivers only
	Ready  func(context.Context, *sql.Conn) error // prepares a connection for use; may be nil
	Bound  time.Duration                          // of a query of Row, once it has its connection; 0: that of its context
	Socket BorrowedSocket
}

// rolledBack reports whether err says that a transaction had no effect and may
// be tried again. That is a conflict or a deadlock. Of class 40, only 40003
// leaves the effect open.
func rolledBack(err error) bool {
	state := errcode.SQLState(err)
	number, _, isMySQL := errcode.MySQL(err)
	return state == "40001" || state == "40P01" || isMySQL && slices.Contains(errcode.MySQLRolledBack, number)
}

// UnlessRolledBack calls f, which is one transaction, and again when the database
// has rolled it back because of others, until ctx ends.
func UnlessRolledBack(ctx context.Context, f func() error) error {
	for i := 0; ; i++ {
		err := f()
		if !rolledBack(err) || ctx.Err() != nil {
			return err
		}
		Rest(ctx, i)
	}
}

// borrow calls f with a connection. f is one transaction. borrow calls it again
// when the database has rolled it back.
func (p *Pool) borrow(ctx context.Context, f func(*sql.Conn) error) error {
	return UnlessRolledBack(ctx, func() error { return p.Once(ctx, f) })
}

// Rest pauses for a random time, which grows with the number of failures. It
// returns early when ctx ends.
func Rest(ctx context.Context, failures int) {
	longest := time.Millisecond << min(failures, 5)
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(longest)))) //nolint:gosec // to be out of step with others
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Once calls f once with a connection. It never lets database/sql repeat a
// statement, since the first one may have had its effect.
func (p *Pool) Once(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := Lend(ctx, p.DB)
	if err != nil {
		return err
	}
	p.Socket.set(SocketOf(conn, p.Find))
	if p.Ready != nil {
		err = p.Ready(ctx, conn)
	}
	if err == nil {
		err = f(conn)
	}
	p.Socket.set(nil)
	if errcode.SQLState(err) == errcode.ReadOnly {
		Destroy(conn, "") // another one may be able to write: a setting of the database counts from the login on
	}
	_ = conn.Close() // gives it back
	return err
}

// The failures of a pool that lends no connection in time.
var (
	// ErrNoConnection: all connections that the pool may open are in use.
	ErrNoConnection error = &dialect.Failure{Kind: dialect.Statement, Reason: "no connection of the pool came free, or could be made, in time: all that SetMaxOpenConns allows are in use"}

	// ErrNoServer: the pool may open another connection, and the server made none.
	ErrNoServer error = &dialect.Failure{Kind: dialect.Statement, Away: true, Reason: "no connection could be made in time: the server or the network does not answer"}
)

// Lend returns a connection of db, which the caller closes. It gives up shortly
// before the deadline of ctx and then says why.
func Lend(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	bounded, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		bounded, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
	}
	defer cancel()
	conn, err := Live(bounded, db)
	if err != nil && bounded.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = ErrNoServer
		if stats := db.Stats(); stats.MaxOpenConnections > 0 && stats.InUse >= stats.MaxOpenConnections {
			err = ErrNoConnection
		}
	}
	return conn, loginFailure(err)
}

// badParameter are the SQLSTATEs by which PostgreSQL rejects a parameter of the
// connection string at a login: an unknown name, a wrong value, options that
// cannot be read.
var badParameter = []string{"42704", "22023", "42601"}

// loginFailure returns err of a login. Some codes mean something of their own
// there.
func loginFailure(err error) error {
	state := errcode.SQLState(err)
	number, _, isMySQL := errcode.MySQL(err)
	switch {
	case state == errcode.Forbidden:
		return dialect.Misconfigured("the role may not connect to the database: grant it CONNECT: SQLSTATE " + state)
	case state == errcode.NotInState:
		return dialect.Misconfigured("the database accepts no connections: see ALTER DATABASE with ALLOW_CONNECTIONS: SQLSTATE " + state)
	case slices.Contains(badParameter, state):
		return dialect.Misconfigured("the server rejects a parameter of the connection string: " + parameterAdvice + ": SQLSTATE " + state)
	case isMySQL && slices.Contains(errcode.MySQLNoSetting, number):
		return dialect.Misconfigured("the server rejects a parameter of the connection string: " + parameterAdvice + ": error " + strconv.Itoa(int(number)))
	}
	return err
}

const parameterAdvice = "correct its name or its value, or leave it out if it is for another driver or pool, such as pool_max_conns"

// Row scans the one row of query, which has no arguments.
func (p *Pool) Row(ctx context.Context, query string, dest ...any) error {
	return p.borrow(ctx, func(conn *sql.Conn) error {
		ctx, cancel := ctx, func() {}
		if p.Bound > 0 {
			ctx, cancel = context.WithTimeout(ctx, p.Bound)
		}
		defer cancel()
		return conn.QueryRowContext(ctx, query).Scan(dest...)
	})
}

// Exec sends a statement that has no arguments.
func (p *Pool) Exec(ctx context.Context, statement string) error {
	return p.borrow(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}

// A BorrowedSocket is the socket of the connection that a Pool has borrowed, if
// it can be reached. Any goroutine may close it under a statement.
type BorrowedSocket struct {
	mu     sync.Mutex // protects the fields below
	socket net.Conn   // nil while no connection is borrowed
	spared bool
}

// set notes the socket of the connection that is borrowed now, or nil.
func (b *BorrowedSocket) set(socket net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.socket = socket
}

// Close closes the socket, so that a statement fails whose driver ignores its
// context.
func (b *BorrowedSocket) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.socket != nil && !b.spared {
		_ = b.socket.Close()
	}
}

// Spare makes Close do nothing from now on.
func (b *BorrowedSocket) Spare() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spared = true
}
