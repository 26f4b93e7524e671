package databases

import (
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A kind is a kind of database with a driver and a way to connect.
type kind struct {
	name   string
	orders func(t *testing.T) lockertest.Orders // makes a fresh database
	locks  string                               // the query that counts its locks; "" if there is none
}

const leaseRows = "SELECT count(*) FROM latchkey_locks"

// kinds are the databases that most tests run on: each dialect, and of
// PostgreSQL with a lease table each driver, with a pooler between and without.
var kinds = []kind{
	{"SQLite", sqlite, leaseRows},
	{"MariaDB", mariadb, namedLocks},
	{"lease table, MariaDB", func(t *testing.T) lockertest.Orders {
		o := mariadb(t)
		o.LeaseTable = true
		return o
	}, leaseRows},
	{"TiDB", func(t *testing.T) lockertest.Orders { return tidb(t) }, leaseRows},
	{"lease table, pgx", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(pgtest.Database(t)), LeaseTable: true}
	}, leaseRows},
	{"lease table, lib/pq, PgBouncer", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "postgres", DSN: throughPgBouncer(t), LeaseTable: true}
	}, leaseRows},
	{"lease table, unknown server", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(unknownServer(t)), LeaseTable: true}
	}, leaseRows},
}

// moreKinds are the combinations that only the conformance suite runs on.
var moreKinds = []kind{
	{"lease table, lib/pq", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "postgres", DSN: pgtest.Database(t), LeaseTable: true}
	}, leaseRows},
	{"lease table, pgx, PgBouncer", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(throughPgBouncer(t)), LeaseTable: true}
	}, leaseRows},
}

// eachKind runs test on a fresh database of each kind.
func eachKind(t *testing.T, test func(t *testing.T, k kind, o lockertest.Orders), more ...kind) {
	onEach(t, slices.Concat(kinds, more), test)
}

// eachLeaseTable runs test on a fresh database of each kind that has rows for
// locks.
func eachLeaseTable(t *testing.T, test func(t *testing.T, o lockertest.Orders)) {
	rows := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return k.locks != leaseRows })
	onEach(t, rows, func(t *testing.T, _ kind, o lockertest.Orders) { test(t, o) })
}

func onEach(t *testing.T, kinds []kind, test func(t *testing.T, k kind, o lockertest.Orders)) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k, k.orders(t))
		})
	}
}

// drawsTokens reports whether a Session with a lease table on o draws each token
// from a counter when Fence asks for it.
func drawsTokens(o lockertest.Orders) bool { return isUnknownServer(o) || o.Driver == "mysql" }

// isSQLite reports whether o is a database of SQLite.
func isSQLite(o lockertest.Orders) bool { return o.Driver == "sqlite" }

// dialectOf returns the dialect of o.
func dialectOf(o lockertest.Orders) sqllock.Dialect {
	switch o.Driver {
	case "sqlite":
		return sqllock.SQLite
	case "mysql":
		return sqllock.MySQL
	}
	return sqllock.PostgreSQL
}

// file returns the DSN of a new file, as a service would have it.
func file(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=busy_timeout(5000)"
}

func sqlite(t *testing.T) lockertest.Orders {
	return lockertest.Orders{Driver: "sqlite", DSN: file(t)}
}

// inExecMode keeps pgx from preparing statements.
func inExecMode(dsn string) string {
	mark := "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	return dsn + mark + "default_query_exec_mode=exec"
}

// unprepared keeps driver from preparing statements, as a lease table needs it.
func unprepared(driver, dsn string) string {
	if driver == "pgx" {
		return inExecMode(dsn)
	}
	return dsn
}

// unknownServer returns a fresh database that does not report to be PostgreSQL.
// A Session uses neither its settings nor its write-ahead log.
func unknownServer(t *testing.T) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	db := open(t, "pgx", dsn)
	execute(t, db, `SET allow_system_table_mods = on;
		ALTER FUNCTION pg_catalog.version() RENAME TO own_version;
		CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT 'UnknownDB 1.0'::text $$`)
	return dsn + "&search_path=public,unknown"
}

// isUnknownServer reports whether o is such a database. A fence's token needs a
// statement of its own there: no lock comes with one.
func isUnknownServer(o lockertest.Orders) bool {
	return strings.Contains(o.DSN, "search_path=public,unknown")
}

// A pooledServer is a PostgreSQL behind a PgBouncer in transaction mode, with
// two connections for each database.
type pooledServer struct {
	*pgtest.Cluster
	bouncer *pgtest.Bouncer
}

// pooler starts the server that all tests share which need one behind a pooler.
var pooler = sync.OnceValues(func() (*pooledServer, error) {
	cluster, err := pgtest.Start()
	if err != nil {
		return nil, err
	}
	bouncer, err := cluster.PgBouncer("transaction", 2)
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	started := &pooledServer{cluster, bouncer}
	poolerStarted.Store(started)
	return started, nil
})

var poolerStarted atomic.Pointer[pooledServer] // nil: no test has needed it

// closePooler ends the server of pooler, and returns the code to exit with.
func closePooler(code int) int {
	if p := poolerStarted.Load(); p != nil {
		if err := p.Close(); err != nil {
			println(err.Error())
			return 1
		}
	}
	return code
}

// throughPgBouncer returns the DSN of a fresh database behind a PgBouncer in
// transaction mode.
func throughPgBouncer(t *testing.T) (dsn string) {
	t.Helper()
	p, err := pooler()
	if err != nil {
		pgtest.Fatal(t, err)
	}
	direct, err := p.CreateDatabase(t.Context())
	must(t, err)
	u, err := url.Parse(direct)
	must(t, err)
	return p.bouncer.DSN(strings.TrimPrefix(u.Path, "/"))
}

// pool opens a pool of its own on the database of o.
func pool(t *testing.T, o lockertest.Orders) *sql.DB {
	t.Helper()
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(5)
	return db
}

// steady are the options of a Session that load does not end, and that soon
// notices what has become of its server.
var steady = []sqllock.Option{sqllock.WithLease(time.Minute), sqllock.WithHeartbeat(100 * time.Millisecond)}

// process opens a Session that stands for a process of its own.
func process(t *testing.T, o lockertest.Orders, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	return session(t, pool(t, o), append(o.Options(), opts...)...)
}
