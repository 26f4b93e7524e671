package databases

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	_ "modernc.org/sqlite"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/tidbtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // the tests wait for servers; -parallel replaces it
	bound.Lengthen()
	lockertest.Worker()                            // does not return in a worker of a test with several processes
	slog.SetDefault(slog.New(slog.DiscardHandler)) // otherwise a failure is lost among the losses that tests cause
	_ = mysql.SetLogger(&mysql.NopLogger{})
	os.Exit(leaktest.Check(closePooler(tidbtest.Close(mariadbtest.Close(pgtest.Main(m))))))
}

// Helpers that all tests of databases share.
var (
	open       = dbtest.Open
	number     = dbtest.Number
	mustLock   = dbtest.Lock
	mustUnlock = dbtest.Unlock
	mustConn   = dbtest.Conn
	mustBegin  = dbtest.Transaction
	execute    = dbtest.Execute
)

// must fails the test if a step that the test needs has failed.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// session opens a Session on db.
func session(tb testing.TB, db *sql.DB, opts ...sqllock.Option) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(context.Background(), db, opts...)
	must(tb, err)
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

// eachDriver runs test for each driver of PostgreSQL.
func eachDriver(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	t.Parallel()
	drivers(t, test)
}

// drivers is eachDriver for a test that is parallel to others already.
func drivers(t *testing.T, test func(t *testing.T, driver string)) {
	t.Helper()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver)
		})
	}
}

// ownName returns a name that no other test has, not even one of another process
// on the same server.
func ownName(prefix string) string { return prefix + "_" + strings.ToLower(rand.Text()[:12]) }

// create runs the statements of schemas.
func create(tb testing.TB, db *sql.DB, schemas ...[]string) {
	tb.Helper()
	for _, statement := range slices.Concat(schemas...) {
		execute(tb, db, statement)
	}
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

// awaitLock acquires key. A Session with a short lease has short bounds, so on a
// busy machine a call may end early.
func awaitLock(t *testing.T, l sqllock.Locker, key sqllock.Key) (lock *sqllock.Lock) {
	t.Helper()
	lockertest.Eventually(t, "the key is granted", func() (ok bool) {
		var err error
		lock, err = l.TryLock(context.Background(), key)
		return err == nil
	})
	return lock
}

// awaitError waits until s says why it does not grant key. The error must match
// want.
func awaitError(t *testing.T, s sqllock.Locker, key sqllock.Key, want error, says string) (err error) {
	t.Helper()
	lockertest.Eventually(t, "calls say "+says, func() bool {
		var lock *sqllock.Lock
		if lock, err = s.TryLock(t.Context(), key); err == nil {
			_ = lock.Unlock()
		}
		return err != nil && strings.Contains(err.Error(), says)
	})
	if !errors.Is(err, want) {
		t.Errorf("TryLock: %v, want %v", err, want)
	}
	return err
}

// awaitLoss waits until the holder of lock is told that it is lost.
func awaitLoss(t *testing.T, lock *sqllock.Lock) {
	t.Helper()
	lockertest.Eventually(t, "the holder is told", func() bool { return lock.Err() != nil })
	if err := lock.Unlock(); err != sqllock.ErrLost {
		t.Errorf("Unlock of a lost lock: %v, want ErrLost", err)
	}
}
