// Package dbtest holds what the tests of sqllock and of the packages around it
// share:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
//	func TestOfMine(t *testing.T) {
//		dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
//			s := dbtest.Session(t, driver, dsn)
//			…
//		})
//	}
//
// Each test has a database of its own. Everything that a function here opens is
// closed at the end of the test.
package dbtest

import (
	"context"
	"database/sql"
	"log/slog"
	"os"
	"testing"

	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Main runs the tests of a package and exits. It fails if they leave a
// goroutine behind. The log of sqllock is discarded, so that a failure is not
// lost among the lock losses that tests cause.
func Main(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(leaktest.Check(pgtest.Main(m)))
}

// EachDriver runs test with both drivers of PostgreSQL, each with a database of
// its own.
func EachDriver(t *testing.T, test func(t *testing.T, driver, dsn string)) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver, pgtest.Database(t))
		})
	}
}

// EachCluster runs test with both drivers, each with a server of its own that
// the test may stop or freeze.
func EachCluster(t *testing.T, test func(t *testing.T, driver string, cluster *pgtest.Cluster), opts ...pgtest.Option) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver, pgtest.New(t, opts...))
		})
	}
}

// Open opens a pool on dsn.
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Session opens a Session with a pool of its own on dsn, as a process would.
func Session(tb testing.TB, driver, dsn string, opts ...sqllock.Option) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(context.Background(), Open(tb, driver, dsn), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// Lock acquires key, which must be free.
func Lock(tb testing.TB, l sqllock.Locker, key sqllock.Key) *sqllock.Lock {
	tb.Helper()
	lock, err := l.TryLock(context.Background(), key)
	if err != nil {
		tb.Fatalf("TryLock: %v", err)
	}
	return lock
}

// Unlock releases lock, which must be held.
func Unlock(tb testing.TB, lock *sqllock.Lock) {
	tb.Helper()
	if err := lock.Unlock(); err != nil {
		tb.Errorf("Unlock: %v", err)
	}
}
