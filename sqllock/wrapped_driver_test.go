package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// wrappedConn passes every call on to another driver's connection, as tracing
// wrappers do. It has no method that returns that connection.
type wrappedConn struct {
	parent driver.Conn        // in a field, as in most wrappers; or nil
	hidden func() driver.Conn // not accessible by reflection
}

func (c wrappedConn) inner() driver.Conn {
	if c.parent != nil {
		return c.parent
	}
	return c.hidden()
}

func (c wrappedConn) Prepare(query string) (driver.Stmt, error) { return c.inner().Prepare(query) }
func (c wrappedConn) Close() error                              { return c.inner().Close() }

//lint:ignore SA1019 of the interface
func (c wrappedConn) Begin() (driver.Tx, error) { return c.inner().Begin() }

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
	if checker, ok := c.inner().(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// An execConn calls exec for each statement of another driver's connection.
type execConn struct {
	wrappedConn
	exec func(query string, send func(query string) (driver.Result, error)) (driver.Result, error)
}

func (c execConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.exec(query, func(query string) (driver.Result, error) { return c.wrappedConn.ExecContext(ctx, query, args) })
}

func wrapping(c driver.Conn) driver.Conn { return wrappedConn{parent: c} }
func hiding(c driver.Conn) wrappedConn   { return wrappedConn{hidden: func() driver.Conn { return c }} }
func hides(c driver.Conn) driver.Conn    { return hiding(c) }

// wrapper is a Connector whose connections are wrapped.
type wrapper struct {
	driver.Connector
	wrap func(driver.Conn) driver.Conn
}

func (w wrapper) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := w.Connector.Connect(ctx)
	if err != nil || w.wrap == nil {
		return c, err
	}
	return w.wrap(c), nil
}

// lib/pq with a hidden connection is not among them. It ignores its context
// while the network is silent, and nothing else can stop it.
var wrappedDrivers = []struct {
	name, driver string
	wrap         func(driver.Conn) driver.Conn
}{
	{"pgx", "pgx", wrapping},
	{"pq", "postgres", wrapping},
	{"pgx out of reach", "pgx", hides},
}

// connectorOf returns the Connector of a driver.
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

// openWrapped is open with each of the driver's connections wrapped. wrap may be
// nil.
func openWrapped(t *testing.T, name, dsn string, wrap func(driver.Conn) driver.Conn) *sql.DB {
	t.Helper()
	db := sql.OpenDB(wrapper{connectorOf(t, name, dsn), wrap})
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// A Session behind a wrapper serves again after a cut. Its pool has no spare
// connection for those that stay silent.
func TestLongWrappedDriverAfterCut(t *testing.T) {
	for _, tt := range wrappedDrivers {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w, dsn := startLossyProxy(t, pgtest.Database(t))
			db := openWrapped(t, tt.driver, dsn, tt.wrap)
			db.SetMaxOpenConns(2)
			s := sessionOn(t, db, shortLease())
			lock := take(t, s, 0, 1)[0]
			cut := func(on bool) {
				w.change(func(w *lossyProxy) { w.toServer, w.toClient, w.closesNew = on, on, on })
			}
			cut(true)
			<-lock.Context().Done()
			lockertest.Eventually(t, "attempts to connect fail", func() bool {
				_, err := s.TryLock(t.Context(), sqllock.ID(0))
				return err != nil
			})
			cut(false)
			servesAgain(t, s, sqllock.ID(0))
		})
	}
}
