package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/election"
)

// firstFails is a database that grants every key. Only its first attempt fails,
// as begin or exec does.
type firstFails struct {
	begin, exec func() error
	begun, sent atomic.Int32
}

func (d *firstFails) Connect(context.Context) (driver.Conn, error) { return firstFailsConn{d}, nil }
func (d *firstFails) Driver() driver.Driver                        { return nil }

type firstFailsConn struct{ *firstFails }

func (firstFailsConn) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (firstFailsConn) Close() error                        { return nil }
func (c firstFailsConn) Begin() (driver.Tx, error)         { return c, nil }
func (firstFailsConn) Commit() error                       { return nil }
func (firstFailsConn) Rollback() error                     { return nil }

func (c firstFailsConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) {
	if c.begun.Add(1) == 1 && c.begin != nil {
		return c, c.begin()
	}
	return c, nil
}

func (c firstFailsConn) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	if c.sent.Add(1) == 1 && c.exec != nil {
		return driver.RowsAffected(1), c.exec()
	}
	return driver.RowsAffected(1), nil
}

// An attempt that takes too long, or whose connection is gone, is an outage. A
// campaign goes on after it, as it would not after the end of a closed locker.
func TestPerTxFailedAttemptIsNoEnd(t *testing.T) {
	tooLong := func() error { time.Sleep(time.Minute); return nil } // in a driver that ignores its context
	gone := func() error { return sql.ErrConnDone }
	for name, d := range map[string]*firstFails{
		"BEGIN takes too long": {begin: tooLong},
		"EXEC takes too long":  {exec: tooLong},
		"BEGIN: gone":          {begin: gone},
		"EXEC: gone":           {exec: gone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := sql.OpenDB(d)
				defer db.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				led := false
				err := election.New(sqllock.PerTx(db), sqllock.ID(1)).Run(ctx, func(context.Context) error {
					led = true
					cancel()
					return nil
				})
				if !led {
					t.Errorf("Run: %v before it led, want leadership", err)
				}
			})
		})
	}
}
