package databases

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lossy connector's connections lose replies: a statement is carried out, and then its
// connection breaks.
type lossy struct {
	driver.Connector
	lose func() bool // asked after each statement
}

func (l *lossy) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &lossyConn{Conn: conn, lose: l.lose}, nil
}

// lossyConn has what the drivers here have, and no more.
type lossyConn struct {
	driver.Conn
	lose   func() bool
	broken bool
}

var errBroken = errors.Join(io.ErrUnexpectedEOF, errors.New("the connection broke"))

func (c *lossyConn) Raw() driver.Conn { return c.Conn }

func (c *lossyConn) IsValid() bool { return !c.broken }

func (c *lossyConn) ResetSession(ctx context.Context) error {
	if r, ok := c.Conn.(driver.SessionResetter); ok {
		return r.ResetSession(ctx)
	}
	return nil
}

func (c *lossyConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *lossyConn) breaks() bool {
	if c.lose() {
		c.broken = true
		_ = c.Conn.Close()
	}
	return c.broken
}

func (c *lossyConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if c.broken {
		return nil, errBroken
	}
	result, err := c.Conn.(driver.ExecerContext).ExecContext(ctx, query, args)
	if c.breaks() {
		return nil, errBroken
	}
	return result, err
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.broken {
		return nil, errBroken
	}
	rows, err := c.Conn.(driver.QueryerContext).QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	if !c.lose() {
		return rows, nil
	}
	for row := make([]driver.Value, len(rows.Columns())); rows.Next(row) == nil; {
	}
	_ = rows.Close()
	c.broken = true
	_ = c.Conn.Close()
	return nil, errBroken
}

// openLossy is a pool whose connections lose replies.
func openLossy(t *testing.T, o lockertest.Orders, lose func() bool) *sql.DB {
	t.Helper()
	plain := open(t, o.Driver, o.DSN)
	var connector driver.Connector = dsnConnector{o.DSN, plain.Driver()}
	if d, ok := plain.Driver().(driver.DriverContext); ok {
		var err error
		if connector, err = d.OpenConnector(o.DSN); err != nil {
			t.Fatal(err)
		}
	}
	db := sql.OpenDB(&lossy{connector, lose})
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(5)
	return db
}

type dsnConnector struct {
	dsn    string
	driver driver.Driver
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }
func (c dsnConnector) Driver() driver.Driver                        { return c.driver }

// Where replies get lost, of acquires, releases and renewals, no key is granted twice, and none
// stays locked that nobody holds, while the sessions live.
func TestLostReplies(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		var losing atomic.Bool
		var lost atomic.Int64
		lose := func() bool {
			if !losing.Load() || rand.IntN(20) > 0 { //nolint:gosec // a test's
				return false
			}
			lost.Add(1)
			return true
		}
		sessions := []*sqllock.Session{
			session(t, openLossy(t, o, lose), append(o.Options(), sqllock.WithLease(2*time.Second))...),
			session(t, openLossy(t, o, lose), append(o.Options(), sqllock.WithLease(2*time.Second))...),
		}
		const keys, callers = 6, 16
		var (
			holders [keys]atomic.Pointer[sqllock.Lock]
			granted atomic.Int64
			wg      sync.WaitGroup
		)
		losing.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range callers {
			wg.Go(func() {
				for round := 0; ctx.Err() == nil && (round < 20 || lost.Load() < 20); round++ {
					n := (i + round) % keys
					lock, err := sessions[i%2].TryLock(ctx, sqllock.ID(int64(n)))
					if err != nil {
						if errors.Is(err, sqllock.ErrHeld) || errors.Is(err, sqllock.ErrUnavailable) || ctx.Err() != nil {
							time.Sleep(time.Millisecond) // a client's pause
							continue
						}
						t.Errorf("TryLock: %v", err)
						return
					}
					granted.Add(1)
					if other := holders[n].Swap(lock); other != nil && other.Err() == nil && lock.Err() == nil {
						t.Errorf("key %d is held twice", n)
					}
					time.Sleep(time.Millisecond) // the work
					holders[n].CompareAndSwap(lock, nil)
					_ = lock.Unlock() // what it says depends on which reply was lost
				}
			})
		}
		wg.Wait()
		losing.Store(false)
		t.Logf("%d replies lost, %d grants, %d and %d losses", lost.Load(), granted.Load(), sessions[0].Stats().Losses, sessions[1].Stats().Losses)
		for n := range keys {
			for _, s := range sessions {
				lockertest.Eventually(t, "each key is free to everybody", func() bool {
					lock, err := s.TryLock(t.Context(), sqllock.ID(int64(n)))
					return err == nil && lock.Unlock() == nil
				})
			}
		}
		if k.locks != "" {
			observer := open(t, o.Driver, o.DSN)
			lockertest.Eventually(t, "no lock is left", func() bool { return number(t, observer, k.locks) == 0 })
		}
	})
}
