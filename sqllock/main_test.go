package sqllock_test

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	lockertest.Worker()                            // does not return in a process of a test with several
	runCandidate()                                 // nor does this, in a candidate of TestCampaignTakeOver
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure should not drown in losses that tests cause
	code := pgtest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// open opens a pool on dsn that ends with the test.
func open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	return pgtest.Open(tb, driver, dsn)
}

// session opens a Session with a pool of its own on dsn, as a process would.
func session(tb testing.TB, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(context.Background(), open(tb, driver, dsn), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// eachDriver runs test with both drivers, each with a database of its own.
func eachDriver(t *testing.T, test func(t *testing.T, driver, dsn string)) {
	t.Helper()
	pgtest.EachDriver(t, test)
}

// advisoryLocks counts the advisory locks held in db's database.
func advisoryLocks(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return number(tb, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// sessions counts the connections of Sessions to db's database.
func sessions(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return number(tb, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey'`)
}

func number(tb testing.TB, db *sql.DB, query string, args ...any) int {
	tb.Helper()
	return pgtest.Number(tb, db, query, args...)
}
