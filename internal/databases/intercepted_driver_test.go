package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
)

// A intercept is what a fault does to a statement: it may carry it out, or not, wait, and
// return another error than that did. Of a query carryOut has read nothing; its rows are read before an
// error takes their place, so that the statement has had its effect.
type intercept func(query string, carryOut func() error) error

// errBroken as the answer of a intercept breaks the connection: nothing more comes through. The server
// does not hear of it before the client closes it; were it otherwise, locks that end with
// their connection would be free before anybody could tell their holders
// (docs/decisions/0007).
var errBroken = errors.Join(io.ErrUnexpectedEOF, errors.New("the connection broke"))

// meddled is a pool whose statements are meddled with.
func intercepted(t *testing.T, o lockertest.Orders, intercept intercept) *sql.DB {
	t.Helper()
	db := sql.OpenDB(&interceptor{connector(t, o), intercept})
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(5)
	return db
}

// connector is o's driver and DSN.
func connector(t *testing.T, o lockertest.Orders) driver.Connector {
	t.Helper()
	plain := open(t, o.Driver, o.DSN)
	d, ok := plain.Driver().(driver.DriverContext)
	if !ok {
		return dsnConnector{o.DSN, plain.Driver()}
	}
	c, err := d.OpenConnector(o.DSN)
	if err != nil {
		t.Fatal(err)
	}
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
}

func (m *interceptor) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := m.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &interceptedConn{Conn: conn, intercept: m.intercept}, nil
}

// interceptedConn has what the drivers here have, and no more.
type interceptedConn struct {
	driver.Conn
	intercept intercept
	broken    bool
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
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *interceptedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	if c.broken {
		return nil, errBroken
	}
	err = c.intercept(query, func() (err error) {
		result, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
		return err
	})
	return result, c.failed(err)
}

func (c *interceptedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if c.broken {
		return nil, errBroken
	}
	err = c.intercept(query, func() (err error) {
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
	return rows, c.failed(err)
}

func (c *interceptedConn) failed(err error) error {
	if errors.Is(err, errBroken) {
		c.broken = true
	}
	return err
}
