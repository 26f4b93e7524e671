package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// An intercept replaces the execution of a statement. It may run carryOut or
// not, wait, and return another error than carryOut did. carryOut reads no rows
// of a query. The rows are read before an error replaces them, so the statement
// has had its effect.
type intercept func(query string, carryOut func() error) error

// errBroken, returned by an intercept, breaks the connection: no further
// statement gets through. The server notices only when the client closes the
// connection. Otherwise locks that end with their connection would be free
// before their holders could be notified (docs/decisions/0007).
var errBroken = errors.Join(io.ErrUnexpectedEOF, errors.New("the connection broke"))

// intercepted opens a pool whose statements go through intercept.
func intercepted(t *testing.T, o lockertest.Orders, intercept intercept) *sql.DB {
	t.Helper()
	return (&interceptor{Connector: connector(t, o), intercept: intercept}).pool(t)
}

// rewritten opens a pool whose statements the interceptor can change.
func rewritten(t *testing.T, o lockertest.Orders) (*interceptor, *sql.DB) {
	t.Helper()
	i := &interceptor{Connector: connector(t, o), intercept: unchanged}
	return i, i.pool(t)
}

func unchanged(_ string, carryOut func() error) error { return carryOut() }

// connector returns a Connector for the driver and DSN of o.
func connector(t *testing.T, o lockertest.Orders) driver.Connector {
	t.Helper()
	plain := open(t, o.Driver, o.DSN)
	d, ok := plain.Driver().(driver.DriverContext)
	if !ok {
		return dsnConnector{o.DSN, plain.Driver()}
	}
	c, err := d.OpenConnector(o.DSN)
	must(t, err)
	return c
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

type interceptor struct {
	driver.Connector
	intercept intercept
	change    atomic.Pointer[func(query string) string] // of each statement; nil: none
}

func (m *interceptor) pool(t *testing.T) *sql.DB {
	t.Helper()
	db := sql.OpenDB(m)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(5)
	return db
}

func (m *interceptor) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &interceptedConn{Conn: conn, of: m}, nil
}

// interceptedConn has the methods that the drivers here have, and no others.
type interceptedConn struct {
	driver.Conn
	of     *interceptor
	broken bool
}

func (c *interceptedConn) Raw() driver.Conn { return c.Conn }

func (c *interceptedConn) IsValid() bool { return !c.broken }

func (c *interceptedConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *interceptedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &interceptedTx{tx, c}, nil
}

// An interceptedTx sends what COMMIT was changed to.
type interceptedTx struct {
	driver.Tx
	conn *interceptedConn
}

func (tx *interceptedTx) Commit() error {
	return tx.conn.run("COMMIT", func(query string) error {
		if query == "COMMIT" {
			return tx.Tx.Commit()
		}
		_, err := tx.conn.Conn.(driver.ExecerContext).ExecContext(context.Background(), query, nil)
		return err
	})
}

func (c *interceptedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	err = c.run(query, func(query string) (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, err
}

func (c *interceptedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	err = c.run(query, func(query string) (err error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
		if err != nil {
			rows = nil
		}
		return err
	})
	if err != nil && rows != nil {
		for row := make([]driver.Value, len(rows.Columns())); rows.Next(row) == nil; {
		}
		_ = rows.Close()
	}
	return rows, err
}

// run carries out a statement as the interceptor says.
func (c *interceptedConn) run(query string, carryOut func(query string) error) error {
	if c.broken {
		return errBroken
	}
	if change := c.of.change.Load(); change != nil {
		query = (*change)(query)
	}
	err := c.of.intercept(query, func() error { return carryOut(query) })
	c.broken = errors.Is(err, errBroken)
	return err
}
