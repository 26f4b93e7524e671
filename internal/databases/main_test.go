package databases

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8")             // the tests wait for servers; -parallel replaces it
	lockertest.Worker()                            // does not return in a worker of a test with several processes
	slog.SetDefault(slog.New(slog.DiscardHandler)) // otherwise a failure is lost among the losses that tests cause
	_ = mysql.SetLogger(&mysql.NopLogger{})
	code := mariadbtest.Close(pgtest.Main(m))
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
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
	for deadline := time.Now().Add(time.Minute); isSlow(err) && time.Now().Before(deadline); {
		s, err = sqllock.Open(context.Background(), db, opts...)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// isSlow reports whether Open has given up on a server that a busy machine makes
// slow.
func isSlow(err error) bool {
	return errors.Is(err, sqllock.ErrUnavailable) && strings.Contains(err.Error(), "no answer within")
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

func mustUnlock(tb testing.TB, lock *sqllock.Lock) {
	tb.Helper()
	if err := lock.Unlock(); err != nil {
		tb.Errorf("Unlock: %v", err)
	}
}
