package sqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// clients counts the connections to db's database other than the one that asks.
func clients(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return number(tb, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

// An idle Session leaves no connection on the server, so that a serverless one
// can suspend. The pool's setting sees to the connection of the proof.
func TestIdleCloseLeavesNoConnection(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		pool, db := open(t, driver, dsn), open(t, driver, dsn)
		pool.SetConnMaxIdleTime(100 * time.Millisecond)
		db.SetMaxOpenConns(1)
		s := sessionOn(t, pool, sqllock.WithIdleClose(time.Second))
		other := sqllock.Namespace("idle").Keyed([]byte("0123456789abcdef0123456789abcdef")).Key("a")
		lock := mustLock(t, s, sqllock.ID(1))
		secret := mustLock(t, s, other)
		if got := s.Stats(); got.Connections != 1 || got.IdleClosed {
			t.Errorf("%d connections, idle closed %t with a lock", got.Connections, got.IdleClosed)
		}
		if _, err := lock.Token(t.Context()); err != nil {
			t.Errorf("Token: %v", err)
		}
		unlock(t, lock)
		unlock(t, secret)
		lockertest.Eventually(t, "no client is connected", func() bool { return clients(t, db) == 0 })
		if got := s.Stats(); got.Connections != 0 || !got.IdleClosed || got.Losses != 0 {
			t.Errorf("%d connections, idle closed %t, %d losses while idle", got.Connections, got.IdleClosed, got.Losses)
		}
		if n := advisoryLocks(t, db); n != 0 {
			t.Errorf("%d advisory locks are left", n)
		}
		unlock(t, mustLock(t, s, sqllock.ID(1)))
	})
}
