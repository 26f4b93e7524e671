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
				for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) {
					execute(t, db, statement)
				}
				leave(t, db, 2, statements...)
				s, err := sqllock.Open(t.Context(), db, sqllock.WithRegistry(""), sqllock.WithHolder(name), sqllock.WithHeartbeat(20*time.Millisecond))
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				take(t, s, 0, 1)
				takeKeyed(t, s)
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

// takeKeyed acquires a key under a secret. The Session reads pg_locks for it.
func takeKeyed(t *testing.T, s *sqllock.Session) {
	t.Helper()
	if _, err := s.TryLock(t.Context(), sqllock.Namespace("n").Keyed([]byte("secret")).Key("id")); err != nil {
		t.Fatal(err)
	}
}

// The rows of a lease table are committed, whatever the last user of the
// connection has left behind.
func TestLeaseTableOnUsedConnections(t *testing.T) {
	for _, name := range []string{"pgx", "postgres"} {
		for _, wrapped := range []string{"", "wrapped", "hidden"} {
			t.Run(name+wrapped, func(t *testing.T) {
				t.Parallel()
				dsn := pgtest.Database(t)
				if name == "pgx" {
					dsn += "&default_query_exec_mode=exec"
				}
				db := open(t, name, dsn)
				if wrapped != "" {
					db = openWrapped(t, name, dsn, wrapped == "hidden")
				}
				db.SetMaxOpenConns(1)
				leave(t, db, 1, "BEGIN")
				s, err := sqllock.Open(t.Context(), db, sqllock.WithLeaseTable())
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				rival := session(t, name, dsn, sqllock.WithLeaseTable())
				for i, statements := range [][]string{{"BEGIN"}, {"BEGIN", "SELECT 1/0"}} {
					leave(t, db, 1, statements...)
					lock := take(t, s, i, 1)[0]
					if _, err := rival.TryLock(t.Context(), sqllock.ID(int64(i))); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("TryLock of a key that another Session holds: %v, want ErrHeld", err)
					}
					leave(t, db, 1, statements...)
					if err := lock.Unlock(); err != nil {
						t.Errorf("Unlock: %v", err)
					}
					if _, err = rival.TryLock(t.Context(), sqllock.ID(int64(i))); err != nil {
						t.Errorf("TryLock of a key that another Session has released: %v", err)
					}
				}
			})
		}
	}
}

// forever is a Connector whose connections are in a transaction that never
// ends.
type forever struct{ driver.Connector }

func (f forever) Connect(ctx context.Context) (driver.Conn, error) {
	c, err := f.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := c.(driver.ExecerContext).ExecContext(ctx, "BEGIN", nil); err != nil {
		return nil, err
	}
	return inTransaction{wrappedConn{hidden: func() driver.Conn { return c }}}, nil
}

type inTransaction struct{ wrappedConn }

func (c inTransaction) ResetSession(context.Context) error { return nil }

func (c inTransaction) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "BEGIN") || strings.HasPrefix(query, "ROLLBACK") {
		query = "SELECT"
	}
	return c.wrappedConn.ExecContext(ctx, query, args)
}

// Open fails where the server cannot end a silent session.
func TestOpenInEternalTransaction(t *testing.T) {
	eachDriver(t, func(t *testing.T, name, dsn string) {
		db := sql.OpenDB(forever{connectorOf(t, name, dsn)})
		t.Cleanup(func() { _ = db.Close() })
		rejects(t, db, dsn, sqllock.ErrNotExclusive, "keeps a transaction open")
	})
}

// Inspect and PerTx also work on a connection whose last user has left a
// transaction open.
func TestOthersOnUsedConnections(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) {
			execute(t, open(t, driver, dsn), statement)
		}
		for _, left := range []string{"a transaction", "a failed transaction"} {
			t.Run(left, func(t *testing.T) {
				db := open(t, driver, dsn)
				db.SetMaxOpenConns(1)
				leave(t, db, 1, leftBehind[left]...)
				if _, err := lockwatch.Inspect(t.Context(), db); err != nil {
					t.Errorf("Inspect: %v", err)
				}
				leave(t, db, 1, leftBehind[left]...)
				lock, err := sqllock.PerTx(db, sqllock.WithLease(time.Minute)).TryLock(t.Context(), sqllock.ID(1))
				if err != nil {
					t.Fatalf("PerTx: %v", err)
				}
				if err := lock.Unlock(); err != nil {
					t.Error(err)
				}
			})
		}
	})
}
