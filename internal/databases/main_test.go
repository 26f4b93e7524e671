package databases

import (
	"context"
	"database/sql"
	"flag"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait for servers; -parallel replaces it
	bound.Lengthen()
	lockertest.Worker()                            // does not return in a worker of a test with several processes
	slog.SetDefault(slog.New(slog.DiscardHandler)) // otherwise a failure is lost among the losses that tests cause
	_ = mysql.SetLogger(&mysql.NopLogger{})
	os.Exit(leaktest.Check(closePooler(mariadbtest.Close(pgtest.Main(m)))))
}

// open opens a pool on dsn, which the end of the test closes.
func open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// session opens a Session with a pool of its own, as a process would.
func session(tb testing.TB, db *sql.DB, opts ...sqllock.Option) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(context.Background(), db, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// create runs the statements of schemas.
func create(tb testing.TB, db *sql.DB, schemas ...[]string) {
	tb.Helper()
	for _, statement := range slices.Concat(schemas...) {
		execute(tb, db, statement)
	}
}

func execute(tb testing.TB, db *sql.DB, query string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		tb.Fatalf("%.60s…: %v", query, err)
	}
}

func number(tb testing.TB, db *sql.DB, query string, args ...any) int {
	tb.Helper()
	var n int
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		tb.Fatalf("%.60s…: %v", query, err)
	}
	return n
}

func mustLock(tb testing.TB, l sqllock.Locker, key sqllock.Key) *sqllock.Lock {
	tb.Helper()
	lock, err := l.TryLock(context.Background(), key)
	if err != nil {
		tb.Fatalf("TryLock: %v", err)
	}
	return lock
}

// canTake reports whether s grants key now. It gives the lock back.
func canTake(s sqllock.Locker, key sqllock.Key) bool {
	lock, err := s.TryLock(context.Background(), key)
	return err == nil && lock.Unlock() == nil
}

// awaitGrant waits until s grants key.
func awaitGrant(t *testing.T, what string, s sqllock.Locker, key sqllock.Key) {
	t.Helper()
	lockertest.Eventually(t, what, func() bool { return canTake(s, key) })
}

// awaitLoss waits until the holder of lock is told that it is lost.
func awaitLoss(t *testing.T, lock *sqllock.Lock) {
	t.Helper()
	lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
	if err := lock.Unlock(); err != sqllock.ErrLost {
		t.Errorf("Unlock of a lost lock: %v, want ErrLost", err)
	}
}

// mustConn returns a connection of db, which the end of the test closes.
func mustConn(t *testing.T, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// mustBegin begins a transaction of db, which the end of the test rolls back.
func mustBegin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func mustUnlock(tb testing.TB, lock *sqllock.Lock) {
	tb.Helper()
	if err := lock.Unlock(); err != nil {
		tb.Errorf("Unlock: %v", err)
	}
}
