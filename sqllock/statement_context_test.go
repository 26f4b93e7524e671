package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A callersValue is in the contexts of callers alone.
type callersValue struct{}

// A contextConn counts the statements that get a caller's context.
type contextConn struct {
	wrappedConn
	callers *atomic.Int32
}

func (c contextConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	stmt, err := c.wrappedConn.PrepareContext(ctx, query)
	return contextStmt{stmt, c.callers}, err
}

type contextStmt struct {
	driver.Stmt
	callers *atomic.Int32
}

func (s contextStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	if ctx.Value(callersValue{}) != nil {
		s.callers.Add(1)
	}
	return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
}

// No statement gets the context of a caller: its end would cut the connection
// with the locks of all callers.
func TestCallersContextStaysOutOfTheDriver(t *testing.T) {
	t.Parallel()
	for _, name := range pgtest.Drivers() {
		var callers atomic.Int32
		s := sessionOn(t, openWrapped(t, name, pgtest.Database(t), func(c driver.Conn) driver.Conn {
			return contextConn{wrappedConn{parent: c}, &callers}
		}))
		ctx := context.WithValue(t.Context(), callersValue{}, true)
		for _, take := range []func(context.Context, sqllock.Key) (*sqllock.Lock, error){s.TryLock, s.Lock, s.TryRLock} {
			lock, err := take(ctx, sqllock.ID(1))
			if err != nil {
				t.Fatal(err)
			}
			if err := lock.Unlock(); err != nil {
				t.Fatal(err)
			}
		}
		locks, err := s.TryLockAll(ctx, sqllock.ID(1), sqllock.ID(2))
		if err := errors.Join(err, locks.Unlock()); err != nil {
			t.Fatal(err)
		}
		if n := callers.Load(); n > 0 {
			t.Errorf("%s: %d statements got the context of a caller", name, n)
		}
	}
}
