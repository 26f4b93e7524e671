package databases

import (
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/XSAM/otelsql"
	"github.com/ngrok/sqlmw"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func withOtelsql(d driver.Driver) driver.Driver { return otelsql.WrapDriver(d) }
func withSqlmw(d driver.Driver) driver.Driver   { return sqlmw.Driver(d, sqlmw.NullInterceptor{}) }

// wrappings are the layers that a service puts around its driver.
var wrappings = []struct {
	name string
	wrap func(driver.Driver) driver.Driver
}{
	{"otelsql", withOtelsql},
	{"sqlmw", withSqlmw},
	{"otelsql on sqlmw", func(d driver.Driver) driver.Driver { return withOtelsql(withSqlmw(d)) }},
	{"sqlmw on otelsql", func(d driver.Driver) driver.Driver { return withSqlmw(withOtelsql(d)) }},
}

// eachWrapping runs test on a stage of its own for each wrapped driver.
func eachWrapping(t *testing.T, database func(t *testing.T) string, test func(t *testing.T, s stage)) {
	t.Parallel()
	for _, w := range wrappings {
		for _, name := range pgtest.Drivers() {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, database(t))
				s.driver, s.wrap = name, w.wrap
				test(t, s)
			})
		}
	}
}

// onShared returns a fresh database on the server that all tests share.
func onShared(t *testing.T) string { return pgtest.Database(t) }

// Behind tracing wrappers everything works as without them.
func TestLongWrappedDrivers(t *testing.T) {
	eachWrapping(t, onShared, func(t *testing.T, s stage) { s.tryAll(t, nil, nil) })
}

// Behind the outermost of two wrappers everything works. TestLongWrappedDrivers
// tries each.
func TestWrappedDriver(t *testing.T) {
	t.Parallel()
	s := newStage(t, onShared(t))
	s.driver, s.wrap = "pgx", func(d driver.Driver) driver.Driver { return withOtelsql(withSqlmw(d)) }
	s.tryAll(t, nil, nil)
}

// A Session finds the socket below wrappers. It notices a closed connection long
// before its heartbeat.
func TestWrappedDriverIsWatched(t *testing.T) {
	eachWrapping(t, onShared, func(t *testing.T, s stage) {
		locks := session(t, s.pool(t), sqllock.WithLease(24*time.Hour))
		if !locks.Stats().Watched {
			t.Error("no socket is watched")
		}
		lock := mustLock(t, locks, userKey("watched", 1))
		s.endAll(t, "application_name LIKE '%latchkey'")
		awaitLoss(t, lock)
	})
}

// A Session closes a connection whose server process does not respond. The
// connection does not stay in the pool, and the Session serves on another.
func TestLongWrappedDriverThatIsStuck(t *testing.T) {
	cluster := pgtest.New(t) // whose backends can be frozen
	database := func(t *testing.T) string {
		dsn, err := cluster.CreateDatabase(t.Context())
		must(t, err)
		return dsn
	}
	eachWrapping(t, database, func(t *testing.T, s stage) {
		db := s.pool(t)
		locks := session(t, db, sqllock.WithLease(2*time.Second))
		pid := number(t, s.admin, "SELECT pid FROM pg_stat_activity WHERE usename = '"+s.role+"' AND application_name LIKE '%latchkey'")
		must(t, cluster.FreezeBackend(pid))
		defer cluster.ThawBackend(pid)
		again := locks.Stats().Losses > 0 // on a busy machine it may have another connection already
		if _, err := locks.TryLock(t.Context(), userKey("stuck", 1)); !errors.Is(err, sqllock.ErrUnavailable) && !again {
			t.Errorf("TryLock: %v, want ErrUnavailable", err)
		}
		awaitGrant(t, "the Session serves on another connection", locks, userKey("stuck", 2))
		lockertest.Eventually(t, "the stuck connection is closed", func() bool { return db.Stats().InUse == 1 })
	})
}
