package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lib/pq"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A timeout of the server may come after the grant. The try fails then, and the
// key is free: in the database, and for the next call.
func TestConnTryFailsAfterTheGrant(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		fail := false
		db := openWrapped(t, name, dsn, func(c driver.Conn) driver.Conn {
			return execConn{hiding(c), func(query string, send func(string) (driver.Result, error)) (driver.Result, error) {
				result, err := send(query)
				if err == nil && fail && strings.Contains(query, "pg_try_advisory_lock") {
					fail = false
					return nil, &pq.Error{Severity: "ERROR", Code: "57014", Message: "canceling statement due to statement timeout"}
				}
				return result, err
			}}
		})
		locks := sqllock.OnConn(connection(t, db))
		fail = true
		if _, err := locks.TryLock(t.Context(), sqllock.ID(1)); err == nil || fail {
			t.Fatalf("TryLock whose statement fails: %v; it has failed: %t", err, !fail)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d locks after a try that failed", n)
		}
		unlock(t, mustLock(t, locks, sqllock.ID(1)))
	})
}

// A failedTx is a connection in a transaction that has failed: each release of a
// lock fails.
type failedTx struct {
	stuckServer
	releases atomic.Int64
}

func (f *failedTx) Connect(context.Context) (driver.Conn, error) { return f, nil }

func (f *failedTx) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if strings.Contains(query, "pg_advisory_unlock") {
		f.releases.Add(1)
		return nil, &pq.Error{Severity: "ERROR", Code: "25P02", Message: "current transaction is aborted"}
	}
	return driver.RowsAffected(1), nil
}

// While a lock cannot be released, as the owner's transaction has failed, the
// locker tries that once in a while: not one statement after the other, and not
// once for each call that came meanwhile.
func TestConnDoesNotInsist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(failedTx)
		db := sql.OpenDB(server)
		defer db.Close()
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		locks := sqllock.OnConn(conn)
		lock := mustLock(t, locks, sqllock.ID(1))
		if err := lock.Unlock(); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Unlock in a failed transaction: %v, want ErrUnavailable", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			_, _ = locks.TryLock(ended, sqllock.ID(2)) // it has a release tried again
			time.Sleep(time.Millisecond)
		}
		before := server.releases.Load()
		time.Sleep(10 * time.Second)
		// A try is two statements, and there are four in a second.
		if n := server.releases.Load() - before; n == 0 || n > 2*4*10+2 {
			t.Errorf("%d statements to release one lock in ten seconds without calls", n)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the locker notices it at its next try
	})
}
