package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/lib/pq"
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
