package integrations_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	_ = mysql.SetLogger(&mysql.NopLogger{})
	os.Exit(leaktest.Check(mariadbtest.Close(pgtest.Main(m)),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		// After an error golang-migrate leaves the goroutine that reads the next migration.
		goleak.IgnoreAnyFunction("github.com/golang-migrate/migrate/v4.(*Migration).Buffer")))
}

// must returns v. An error in the setup of a test ends all tests.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// onlyHang is longer than any wait that ends.
const onlyHang = 10 * time.Minute

// A fleet opens the Session of one more process. All its Sessions lock in one
// place.
type fleet func() *sqllock.Session

func sqlite(t *testing.T) fleet {
	path := filepath.Join(t.TempDir(), "locks.db")
	return func() *sqllock.Session { return dbtest.Session(t, "sqlite", path) }
}

func postgres(t *testing.T) fleet {
	dsn := pgtest.Database(t)
	return func() *sqllock.Session { return dbtest.Session(t, "pgx", dsn) }
}

func leaseTable(t *testing.T) fleet {
	dsn := pgtest.Database(t) + "&default_query_exec_mode=exec"
	return func() *sqllock.Session { return dbtest.Session(t, "pgx", dsn, sqllock.WithLeaseTable()) }
}

func mariaDB(t *testing.T) fleet {
	dsn := mariadbtest.Database(t)
	return func() *sqllock.Session { return dbtest.Session(t, "mysql", dsn) }
}

// The suites: what the other projects run against their own locks, or the same
// cases in our words if they do not export it.
var suites = map[string]func(t *testing.T, fleet fleet){
	"goose, five Providers":                 gooseProviders,
	"golang-migrate, a driver":              migrateDriver,
	"golang-migrate, a Migrate":             migrateMigrate,
	"gocron, a locker of the scheduler":     gocronLocker,
	"gocron, a locker of the job":           gocronJobLocker,
	"gocron, a locker that is switched off": gocronNoLocker,
	"gocron, an elector":                    gocronElector,
	"fiber, three instances":                fiberInstances,
	"Gitea, one process":                    func(t *testing.T, fleet fleet) { s := fleet(); gitea(t, s, s) },
	"Gitea, two processes":                  func(t *testing.T, fleet fleet) { gitea(t, fleet(), fleet()) },
	"Vault, two nodes":                      vaultNodes,
}

func runSuites(t *testing.T, newFleet func(*testing.T) fleet) {
	for name, suite := range suites {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			suite(t, newFleet(t))
		})
	}
}

func TestSuitesSQLite(t *testing.T)         { runSuites(t, sqlite) }
func TestLongSuitesPostgreSQL(t *testing.T) { runSuites(t, postgres) }
func TestLongSuitesLeaseTable(t *testing.T) { runSuites(t, leaseTable) }
func TestLongSuitesMariaDB(t *testing.T)    { runSuites(t, mariaDB) }
