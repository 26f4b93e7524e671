package dbconn

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/errcode"
)

// A pool lends a connection for each statement. One goroutine uses it at a time.
type Pool struct {
	DB     *sql.DB
	Find   func(any) net.Conn                     // Settings.Socket
	Ready  func(context.Context, *sql.Conn) error // prepares a connection for use; nil: nothing to do
	Flight InFlight
}

// inFlight is the socket under a statement that is under way, where it can be
// reached.
type InFlight struct {
	mu     sync.Mutex
	socket net.Conn // protected by mu; nil while the connection is not borrowed
	spared bool     // protected by mu
}

func (f *InFlight) Set(socket net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.socket = socket
}

// cut makes the statement under way fail, if its driver heeds no context.
func (f *InFlight) Cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.socket != nil && !f.spared {
		_ = f.socket.Close()
	}
}

// uncuttable has statements from now on bounded by their contexts alone.
func (f *InFlight) Uncuttable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.spared = true
}

// attempts is how often a transaction is tried that the database has rolled back
// for the sake of others.
const Attempts = 10

// rolledBack reports whether err says that nothing was done, and that it may be tried again: a
// conflict of transactions, or a deadlock. (Of the others of class 40, 40003 says that it is not known.)
func RolledBack(err error) bool {
	state := errcode.SQLState(err)
	return state == "40001" || state == "40P01"
}

// borrow has f use a connection. It is for one transaction, which may be repeated.
func (p *Pool) Borrow(ctx context.Context, f func(*sql.Conn) error) (err error) {
	for i := range Attempts {
		if err = p.Once(ctx, f); !RolledBack(err) {
			return err
		}
		Rest(ctx, i)
	}
	return err
}

// rest pauses for a random moment, longer after more failures.
func Rest(ctx context.Context, failures int) {
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
func (p *Pool) Once(ctx context.Context, f func(*sql.Conn) error) error {
	conn, err := Lend(ctx, p.DB)
	if err != nil {
		return err
	}
	p.Flight.Set(SocketOf(conn, p.Find))
	if p.Ready != nil {
		err = p.Ready(ctx, conn)
	}
	if err == nil {
		err = f(conn)
	}
	p.Flight.Set(nil)
	_ = conn.Close() // gives it back
	return err
}

// lendOne is a connection of db. It gives up a little before ctx ends, so that there is time to say
// why.
func Lend(ctx context.Context, db *sql.DB) (*sql.Conn, error) {
	bounded, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		bounded, cancel = context.WithTimeout(ctx, time.Until(deadline)*9/10)
	}
	defer cancel()
	conn, err := db.Conn(bounded)
	if err != nil && bounded.Err() != nil && !errors.Is(ctx.Err(), context.Canceled) {
		err = &dialect.Failure{Kind: dialect.Statement, Reason: "no connection of the pool came free, or could be made, in time"}
	}
	return conn, err
}

// row scans the one row of query, which has no arguments.
func (p *Pool) Row(ctx context.Context, query string, dest ...any) error {
	return p.Borrow(ctx, func(conn *sql.Conn) error { return conn.QueryRowContext(ctx, query).Scan(dest...) })
}

// exec carries out a statement that has no arguments.
func (p *Pool) Exec(ctx context.Context, statement string) error {
	return p.Borrow(ctx, func(conn *sql.Conn) error {
		_, err := conn.ExecContext(ctx, statement)
		return err
	})
}
