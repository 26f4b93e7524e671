package dialect

import (
	"context"
	"database/sql"
	"net"
	"strings"
	"sync"
)

// A pool lends a connection for each statement. One goroutine uses it at a time.
type pool struct {
	db     *sql.DB
	find   func(any) net.Conn // Settings.Socket
	flight inFlight
}

// inFlight is the socket under a statement that is under way, where it can be
// reached.
type inFlight struct {
	mu     sync.Mutex
	socket net.Conn // protected by mu; nil while the connection is not borrowed
}

func (f *inFlight) is(socket net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.socket = socket
}

// cut makes the statement under way fail, if its driver heeds no context.
func (f *inFlight) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket != nil {
		_ = f.socket.Close()
	}
}

// attempts is how often a transaction is tried that the database has rolled back
// for the sake of others (SQLSTATE class 40).
const attempts = 10

// borrow has f use a connection. It is for one transaction, which may be repeated.
func (p *pool) borrow(ctx context.Context, f func(*sql.Conn) error) (err error) {
	for range attempts {
		if err = p.once(ctx, f); !strings.HasPrefix(SQLState(err), "40") {
			return err
		}
	}
	return err
}

// once does not have database/sql repeat a statement that may have been carried
// out: its connection is gone, then, and Held tells.
func (p *pool) once(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := p.db.Conn(ctx)
	if err != nil {
		return err
	}
	p.flight.is(socketOf(conn, p.find))
	err = f(conn)
	p.flight.is(nil)
	_ = conn.Close() // gives it back
	return err
}

// row scans the one row of query, which has no arguments.
func (p *pool) row(ctx context.Context, query string, dest ...any) error {
	return p.borrow(ctx, func(conn *sql.Conn) error { return conn.QueryRowContext(ctx, query).Scan(dest...) })
}

// exec carries out a statement that has no arguments.
func (p *pool) exec(ctx context.Context, statement string) error {
	return p.borrow(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}
