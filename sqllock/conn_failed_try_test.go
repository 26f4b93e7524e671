package sqllock_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
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

// While a lock cannot be released, as the owner's transaction has failed, the
// locker tries that once in a while: not one statement after the other, and not
// once for each call that came meanwhile. A slow machine sends fewer.
func TestConnDoesNotInsist(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		var releases atomic.Int64
		db := openWrapped(t, name, dsn, func(c driver.Conn) driver.Conn {
			return execConn{hiding(c), func(query string, send func(string) (driver.Result, error)) (driver.Result, error) {
				if strings.Contains(query, "pg_advisory_unlock") {
					releases.Add(1)
				}
				return send(query)
			}}
		})
		conn := connection(t, db)
		locks := sqllock.OnConn(conn)
		lock := mustLock(t, locks, sqllock.ID(1))
		tx, err := conn.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.Exec("SELECT 1/0"); err == nil {
			t.Fatal("no error to fail the transaction")
		}
		if err := lock.Unlock(); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Unlock in a failed transaction: %v, want ErrUnavailable", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			_, _ = locks.TryLock(ended, sqllock.ID(2)) // it has a release tried again
			time.Sleep(2 * time.Millisecond)
		}
		before := releases.Load()
		time.Sleep(time.Second)
		if n := releases.Load() - before; n > 8 {
			t.Errorf("%d statements to release one lock in a second without calls", n)
		}
	})
}
