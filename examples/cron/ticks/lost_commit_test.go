package ticks

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// lostReply is a connector of connections on which the reply to the next COMMIT
// is lost.
type lostReply struct {
	under  driver.Driver
	dsn    string
	next   atomic.Bool // it is to be
	commit bool        // the server has carried it out all the same
}

func (d *lostReply) Connect(context.Context) (driver.Conn, error) {
	conn, err := d.under.Open(d.dsn)
	return &lostReplyConn{conn, d}, err
}

func (d *lostReply) Driver() driver.Driver { return d.under }

type lostReplyConn struct {
	driver.Conn
	of *lostReply
}

func (c *lostReplyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
}

func (c *lostReplyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	return c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
}

func (c *lostReplyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	tx, err := c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
	return &lostReplyTx{tx, c}, err
}

type lostReplyTx struct {
	driver.Tx
	conn *lostReplyConn
}

func (tx *lostReplyTx) Commit() error {
	d := tx.conn.of
	if !d.next.Swap(false) {
		return tx.Tx.Commit()
	}
	if !d.commit {
		return errors.Join(driver.ErrBadConn, tx.Rollback())
	}
	return errors.Join(driver.ErrBadConn, tx.Tx.Commit())
}

// An instance that does not learn whether its mark was committed does not run
// the tick, and releases the lock. Another instance runs the tick if the mark
// was not committed, and none if it was. The next tick is run.
func TestLostCommit(t *testing.T) {
	for name, committed := range map[string]bool{"committed": true, "not committed": false} {
		t.Run(name, func(t *testing.T) {
			eachDriver(t, func(t *place) {
				d := &lostReply{under: t.db.Driver(), dsn: t.dsn, commit: committed}
				d.next.Store(true)
				marks := sql.OpenDB(d)
				t.Cleanup(func() { _ = marks.Close() })
				clock, s, runs := newHandClock(), Every(time.Minute), 0
				do := func(db *sql.DB) error {
					return New(t.session(), db, "cron", WithClock(clock.Now)).
						Do(t.Context(), "report", s, func(context.Context) { runs++ })
				}
				err := do(marks)
				if !errors.Is(err, sqllock.ErrUnavailable) || !strings.Contains(err.Error(), "not known") || runs != 0 {
					t.Errorf("the instance whose commit got no reply: %v, %d runs", err, runs)
				}
				if n := t.locks(); n != 0 {
					t.Errorf("%d locks are held", n)
				}
				if err := do(t.db); committed != (err == watermark.ErrPassed) || committed != (runs == 0) {
					t.Errorf("another, at the same tick: %v, %d runs", err, runs)
				}
				before := runs
				clock.forward(time.Minute)
				if err := do(marks); err != nil || runs != before+1 {
					t.Errorf("the next tick: %v, %d runs", err, runs-before)
				}
			})
		})
	}
}
