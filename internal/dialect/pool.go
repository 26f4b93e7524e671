package dialect

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// A pool lends a connection for each statement. One goroutine uses it at a time.
type pool struct {
	db     *sql.DB
	find   func(any) net.Conn                     // Settings.Socket
	ready  func(context.Context, *sql.Conn) error // prepares a connection for use; nil: nothing to do
	flight inFlight
}

// inFlight is the socket under a statement that is under way, where it can be
// reached.
type inFlight struct {
	mu     sync.Mutex
	socket net.Conn // protected by mu; nil while the connection is not borrowed
	spared bool     // protected by mu
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
	if f.socket != nil && !f.spared {
		_ = f.socket.Close()
	}
}

// uncuttable has statements from now on bounded by their contexts alone.
func (f *inFlight) uncuttable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spared = true
}

// attempts is how often a transaction is tried that the database has rolled back
// for the sake of others.
const attempts = 10

// rolledBack reports whether err says that nothing was done, and that it may be tried again: a
// conflict of transactions, or a deadlock. (Of the others of class 40, 40003 says that it is not known.)
func rolledBack(err error) bool {
	state := SQLState(err)
	return state == "40001" || state == "40P01"
}

// borrow has f use a connection. It is for one transaction, which may be repeated.
func (p *pool) borrow(ctx context.Context, f func(*sql.Conn) error) (err error) {
	for i := range attempts {
		if err = p.once(ctx, f); !rolledBack(err) {
			return err
		}
		rest(ctx, i)
	}
	return err
}

// rest pauses for a random moment, longer after more failures.
func rest(ctx context.Context, failures int) {
	longest := time.Millisecond << min(failures, 5)
	timer := time.NewTimer(time.Duration(rand.Int64N(int64(longest)))) //nolint:gosec // to be out of step with others
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// once does not have database/sql repeat a statement that may have been carried
// out: its connection is gone, then, and Held tells.
func (p *pool) once(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := lendOne(ctx, p.db)
	if err != nil {
		return err
	}
	p.flight.is(socketOf(conn, p.find))
	if p.ready != nil {
		err = p.ready(ctx, conn)
	}
	if err == nil {
		err = f(conn)
	}
	p.flight.is(nil)
	_ = conn.Close() // gives it back
	return err
}

// lendOne is a connection of db. It gives up a little before ctx ends, so that there is time to say
// why.
func lendOne(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	bounded, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		bounded, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
	}
	defer cancel()
	conn, err := db.Conn(bounded)
	if err != nil && bounded.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = &Failure{Kind: Statement, Reason: "no connection of the pool came free, or could be made, in time"}
	}
	return conn, err
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
