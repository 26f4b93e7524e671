package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wrappedConn passes everything on to another driver's connection, as tracing
// wrappers do, and has no method that gives that connection.
type wrappedConn struct {
	parent driver.Conn        // in a field, as most wrappers have it; or nil
	hidden func() driver.Conn // out of reach
}

func (c wrappedConn) inner() driver.Conn {
	if c.parent != nil {
		return c.parent
	}
	return c.hidden()
}

func (c wrappedConn) Prepare(query string) (driver.Stmt, error) { return c.inner().Prepare(query) }
func (c wrappedConn) Close() error                              { return c.inner().Close() }
func (c wrappedConn) Begin() (driver.Tx, error)                 { return c.inner().Begin() } //nolint:staticcheck // of the interface

func (c wrappedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.inner().(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c wrappedConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	return c.inner().(driver.ConnPrepareContext).PrepareContext(ctx, query)
}

func (c wrappedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.inner().(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c wrappedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.inner().(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c wrappedConn) ResetSession(ctx context.Context) error {
	return c.inner().(driver.SessionResetter).ResetSession(ctx)
}

func (c wrappedConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.inner().(driver.NamedValueChecker).CheckNamedValue(v)
}

// wrapper is a Connector of wrappedConns.
type wrapper struct {
	driver.Connector
	hides bool
}

func (w wrapper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	switch {
	case err != nil:
		return nil, err
	case w.hides:
		return wrappedConn{hidden: func() driver.Conn { return c }}, nil
	}
	return wrappedConn{parent: c}, nil
}

// connectorOf is the Connector of a driver.
func connectorOf(t *testing.T, name, dsn string) (connector driver.Connector) {
	t.Helper()
	var err error
	if name == "pgx" {
		connector, err = stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector(dsn)
	} else {
		connector, err = pq.NewConnector(dsn)
	}
	if err != nil {
		t.Fatal(err)
	}
	return connector
}

// openWrapped is open with a wrapper around the driver.
func openWrapped(t *testing.T, name, dsn string, hides bool) *sql.DB {
	t.Helper()
	db := sql.OpenDB(wrapper{connectorOf(t, name, dsn), hides})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A network is a TCP proxy whose connections can fall silent.
type network struct {
	listener net.Listener
	target   string
	ended    sync.WaitGroup

	mu    sync.Mutex
	up    chan struct{} // protected by mu; closed while new connections go through
	links []*link       // protected by mu
}

// A link is one connection through a network, with its two ends.
type link struct {
	client, server net.Conn
	silent         atomic.Bool // for good, as one that a device between has forgotten
}

// startNetwork returns a network in front of the server of dsn, and the DSN through it.
func startNetwork(t *testing.T, dsn string) (*network, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	n := &network{target: u.Host, up: make(chan struct{})}
	close(n.up)
	if n.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	u.Host = n.listener.Addr().String()
	n.ended.Go(n.accept)
	t.Cleanup(n.close)
	return n, u.String()
}

func (n *network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.ended.Go(func() { n.serve(client) })
	}
}

func (n *network) serve(client net.Conn) {
	n.mu.Lock()
	up := n.up
	n.mu.Unlock()
	<-up
	server, err := net.Dial("tcp", n.target)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{client: client, server: server}
	n.mu.Lock()
	n.links = append(n.links, l)
	n.mu.Unlock()
	n.ended.Go(func() { l.pump(client, server) })
	l.pump(server, client)
}

// pump copies what comes, or loses it and its end.
func (l *link) pump(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		size, err := from.Read(buffer)
		if l.silent.Load() {
			_, _ = io.Copy(io.Discard, from)
			return
		}
		if err == nil {
			_, err = to.Write(buffer[:size])
		}
		if err != nil {
			_ = to.Close()
			return
		}
	}
}

// cut has all connections fall silent for good. New ones wait for heal.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up = make(chan struct{})
	for _, l := range n.links {
		l.silent.Store(true)
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.up)
}

func (n *network) close() {
	_ = n.listener.Close()
	n.mu.Lock()
	for _, l := range n.links {
		_ = l.client.Close()
		_ = l.server.Close()
	}
	n.mu.Unlock()
	n.ended.Wait()
}

// Behind a wrapper, too, a Session comes back after a cut, on a pool that has no
// connection to spare for those that stay silent.
func TestWrappedDriverAfterCut(t *testing.T) {
	for _, tt := range []struct {
		name, driver string
		hides        bool
	}{
		{"pgx", "pgx", false},
		{"pq", "postgres", false},
		{"pgx out of reach", "pgx", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n, dsn := startNetwork(t, pgtest.Database(t))
			db := openWrapped(t, tt.driver, dsn, tt.hides)
			db.SetMaxOpenConns(2)
			s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(2*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			lock := take(t, s, 0, 1)[0]
			n.cut()
			<-lock.Context().Done()
			lockertest.Eventually(t, "attempts to connect fail", func() bool {
				_, err := s.TryLock(t.Context(), sqllock.ID(0))
				return err != nil
			})
			n.heal()
			servesAgain(t, s, sqllock.ID(0))
		})
	}
}

// A wrapper that hides a pool of the driver's own does not keep a session alive.
func TestCloseOnWrappedDriverPool(t *testing.T) {
	for _, hides := range []bool{false, true} {
		dsn := pgtest.Database(t)
		pool, err := pgxpool.New(t.Context(), dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		db := sql.OpenDB(wrapper{stdlib.GetPoolConnector(pool), hides})
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(0)
		if _, err := db.Exec("CREATE TABLE orders (id int)"); err != nil {
			t.Fatal(err)
		}
		s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		take(t, s, 0, 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		leavesNothing(t, db, dsn)
	}
}
