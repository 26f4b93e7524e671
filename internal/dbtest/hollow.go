package dbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// Hollow returns a pool whose connections carry out nothing, or which has none
// while connect returns an error.
func Hollow(connect func(context.Context) error) *sql.DB { return sql.OpenDB(hollow(connect)) }

type hollow func(context.Context) error

func (connect hollow) Connect(ctx context.Context) (driver.Conn, error) {
	if err := connect(ctx); err != nil {
		return nil, err
	}
	return hollowConn{}, nil
}

func (hollow) Driver() driver.Driver { return nil }

type hollowConn struct{}

func (hollowConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrBadConn }
func (hollowConn) Close() error                        { return nil }
func (hollowConn) Begin() (driver.Tx, error)           { return nil, driver.ErrBadConn }
