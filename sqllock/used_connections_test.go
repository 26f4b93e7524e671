package sqllock_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// leave runs statements on each of n connections of db, and returns the
// connections to the pool. Some statements may fail.
func leave(t *testing.T, db *sql.DB, n int, statements ...string) {
	t.Helper()
	db.SetMaxIdleConns(n)
	conns := make([]*sql.Conn, n)
	for i := range conns {
		conns[i] = connection(t, db)
		for _, s := range statements {
			_, _ = conns[i].ExecContext(t.Context(), s)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// leftBehind is what the last user of a pooled connection may have left behind.
// A Session must work on such a connection, and the server must be able to end
// its session.
var leftBehind = map[string][]string{
	"a transaction":          {"BEGIN"},
	"a failed transaction":   {"BEGIN", "SELECT 1/0"},
	"read-only transactions": {"SET default_transaction_read_only = on", "SET default_transaction_isolation = serializable"},
	"a temporary table":      {"CREATE TEMPORARY TABLE pg_locks (n int)"},
}

func TestOpenOnUsedConnections(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, _ string) {
		for name, statements := range leftBehind {
			t.Run(name, func(t *testing.T) {
				dsn := pgtest.Database(t) // a database for each case: the server may still be ending connections of the previous one
				db := open(t, driver, dsn)
				create(t, db, lockwatch.Schema(sqllock.PostgreSQL))
				leave(t, db, 2, statements...)
				s := sessionOn(t, db, sqllock.WithRegistry(""), sqllock.WithHolder(name), sqllock.WithHeartbeat(20*time.Millisecond))
				take(t, s, 0, 1)
				takeKeyed(t, s)
				small := open(t, driver, dsn)
				small.SetMaxOpenConns(1)
				leave(t, small, 1, statements...)
				unlock(t, mustLock(t, sqllock.PerTx(small, sqllock.WithLease(time.Minute)), sqllock.ID(1)))
				observer := open(t, driver, dsn)
				lockertest.Eventually(t, "the connection is idle, and in no transaction", func() bool {
					return number(t, observer, `SELECT count(*) FROM pg_stat_activity
						WHERE datname = current_database() AND application_name LIKE '%latchkey' AND state = 'idle'`) == 1
				})
				lockertest.Eventually(t, "the registry is written", func() bool {
					return number(t, observer, `SELECT count(*) FROM latchkey_heartbeats WHERE holder = $1 AND key_id = 0`, name) == 1
				})
				if n := number(t, observer, `SELECT count(*) FROM pg_stat_activity
					WHERE datname = current_database() AND state LIKE 'idle in transaction%'`); n != 0 {
					t.Errorf("%d connections of the pool are in a transaction, want 0", n)
				}
			})
		}
	})
}

// A connection from a shared pool may hold locks that its last user forgot. The
// Session must not count them as its own.
func TestForgottenLocksInThePool(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := open(t, driver, dsn)
		leave(t, db, 2, "SELECT pg_advisory_lock(pg_backend_pid())")
		s := sessionOn(t, db)
		forgotten := sqllock.ID(int64(number(t, open(t, driver, dsn), sessionPID)))
		unlock(t, mustLock(t, s, forgotten))
		mustLock(t, session(t, driver, dsn), forgotten)
	})
}

// takeKeyed acquires a key under a secret. The Session reads pg_locks for it. Each
// test has a key of its own, since the rows of an earlier Session may outlive it.
func takeKeyed(t *testing.T, s *sqllock.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := s.Lock(ctx, sqllock.Namespace("n").Keyed([]byte("secret")).Key(t.Name())); err != nil {
		t.Fatalf("Lock: %v", err)
	}
}

// The rows of a lease table are committed, whatever the last user of the
// connection has left behind.
func TestLeaseTableOnUsedConnections(t *testing.T) {
	for _, name := range []string{"pgx", "postgres"} {
		for how, wrap := range map[string]func(driver.Conn) driver.Conn{"": nil, " wrapped": wrapping, " hidden": hides} {
			t.Run(name+how, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				if name == "pgx" {
					dsn += "&default_query_exec_mode=exec"
				}
				db := openWrapped(t, name, dsn, wrap)
				db.SetMaxOpenConns(1)
				leave(t, db, 1, "BEGIN")
				s := sessionOn(t, db, sqllock.WithLeaseTable())
				rival := session(t, name, dsn, sqllock.WithLeaseTable())
				for i, statements := range [][]string{{"BEGIN"}, {"BEGIN", "SELECT 1/0"}} {
					leave(t, db, 1, statements...)
					lock := take(t, s, i, 1)[0]
					if _, err := rival.TryLock(t.Context(), sqllock.ID(int64(i))); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("TryLock of a key that another Session holds: %v, want ErrHeld", err)
					}
					leave(t, db, 1, statements...)
					unlock(t, lock)
					mustLock(t, rival, sqllock.ID(int64(i)))
				}
			})
		}
	}
}

// inTransaction is a connection in a transaction that never ends.
type inTransaction struct{ execConn }

func (c inTransaction) ResetSession(context.Context) error { return nil }

// Open fails where the server cannot end a silent session.
func TestOpenInEternalTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		db := openWrapped(t, name, dsn, func(c driver.Conn) driver.Conn {
			_, _ = c.(driver.ExecerContext).ExecContext(t.Context(), "BEGIN", nil)
			return inTransaction{execConn{hiding(c), func(query string, send func(string) (driver.Result, error)) (driver.Result, error) {
				if strings.HasPrefix(query, "BEGIN") || strings.HasPrefix(query, "ROLLBACK") {
					query = "SELECT"
				}
				return send(query)
			}}}
		})
		rejects(t, db, dsn, sqllock.ErrNotExclusive, "keeps a transaction open")
	})
}
