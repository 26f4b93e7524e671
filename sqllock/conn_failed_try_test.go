package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/sqllock"
)

// lateFailures is a Connector whose connections carry out a try for a lock and
// then report that it was cancelled, when fail is true.
type lateFailures struct {
	driver.Connector
	fail *atomic.Bool
}

func (l lateFailures) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return lateFailure{wrappedConn{parent: c}, l.fail}, nil
}

type lateFailure struct {
	wrappedConn
	fail *atomic.Bool
}

func (c lateFailure) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.wrappedConn.ExecContext(ctx, query, args)
	if err == nil && strings.Contains(query, "pg_try_advisory_lock") && c.fail.Swap(false) {
		return nil, &pq.Error{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
	}
	return result, err
}

// A timeout of the server may come after the grant. The try fails then, and the
// key is free: in the database, and for the next call.
func TestConnTryFailsAfterTheGrant(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		fail := new(atomic.Bool)
		db := sql.OpenDB(lateFailures{connectorOf(t, name, dsn), fail})
		t.Cleanup(func() { _ = db.Close() })
		locks := sqllock.OnConn(connection(t, db))
		fail.Store(true)
		if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); err == nil || fail.Load() {
			t.Fatalf("TryLock whose statement fails: %v; it has failed: %t", err, !fail.Load())
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks after a try that failed", n)
		}
		lock, err := locks.TryLock(t.Context(), sqllock.ID(1))
		if err != nil {
			t.Fatalf("TryLock after one that failed: %v", err)
		}
		if err := lock.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
