package databases

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A kind is a kind of database, a driver of it, and a way to it.
type kind struct {
	name   string
	orders func(t *testing.T) lockertest.Orders // of a fresh database: driver and options
	locks  string                               // how many locks it has; "" where it cannot be asked
}

const leaseRows = "SELECT count(*) FROM latchkey_locks"

var kinds = []kind{
	{"SQLite", sqlite, leaseRows},
	{"MariaDB", mariadb, namedLocks},
	{"lease table, pgx", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(pgtest.Database(t)), LeaseTable: true}
	}, leaseRows},
	{"lease table, lib/pq", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "postgres", DSN: pgtest.Database(t), LeaseTable: true}
	}, leaseRows},
	{"lease table, pgx, PgBouncer", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(throughPgBouncer(t)), LeaseTable: true}
	}, leaseRows},
	{"lease table, lib/pq, PgBouncer", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "postgres", DSN: throughPgBouncer(t), LeaseTable: true}
	}, leaseRows},
	{"lease table, unknown server", func(t *testing.T) lockertest.Orders {
		return lockertest.Orders{Driver: "pgx", DSN: inExecMode(unknownServer(t)), LeaseTable: true}
	}, leaseRows},
}

// eachKind runs test on a fresh database of each kind.
func eachKind(t *testing.T, test func(t *testing.T, k kind, o lockertest.Orders)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			test(t, k, k.orders(t))
		})
	}
}

// file is the DSN of a new file, as a service's would be.
func file(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "app.db") + "?_pragma=busy_timeout(5000)"
}

func sqlite(t *testing.T) lockertest.Orders {
	return lockertest.Orders{Driver: "sqlite", DSN: file(t)}
}

// inExecMode has pgx prepare nothing.
func inExecMode(dsn string) string {
	mark := "?"
	if strings.Contains(dsn, "?") {
		mark = "&"
	}
	return dsn + mark + "default_query_exec_mode=exec"
}

// elsewhere is a fresh database that does not say that it is PostgreSQL: it is spoken to as one
// that has neither its settings nor its write-ahead log.
func unknownServer(t *testing.T) (dsn string) {
	t.Helper()
	dsn = pgtest.Database(t)
	db := open(t, "pgx", dsn)
	execute(t, db, `SET allow_system_table_mods = on;
		ALTER FUNCTION pg_catalog.version() RENAME TO own_version;
		CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT 'UnknownDB 1.0'::text $$`)
	return dsn + "&search_path=public,unknown"
}

// isUnknownServer reports whether o is of such a database, where a fence's token takes a question: no
// lock brings one along.
func isUnknownServer(o lockertest.Orders) bool {
	return strings.Contains(o.DSN, "search_path=public,unknown")
}

// throughPgBouncer is a fresh server behind a PgBouncer in transaction mode that has
// two connections.
func throughPgBouncer(t *testing.T) (dsn string) {
	t.Helper()
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 2)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bouncer.Close() })
	return bouncer.DSN("")
}

// pool is a pool of its own on o's database.
func pool(t *testing.T, o lockertest.Orders) *sql.DB {
	t.Helper()
	db := open(t, o.Driver, o.DSN)
	db.SetMaxOpenConns(5)
	return db
}

// process is a Session that stands for a process of its own.
func process(t *testing.T, o lockertest.Orders, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	return session(t, pool(t, o), append(o.Options(), opts...)...)
}
