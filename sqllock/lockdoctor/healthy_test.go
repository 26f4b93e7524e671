package lockdoctor_test

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// with returns dsn with a further parameter.
func with(dsn, name, value string) string {
	u, err := url.Parse(dsn)
	if err != nil {
		panic(err)
	}
	query := u.Query()
	query.Set(name, value)
	u.RawQuery = query.Encode()
	return u.String()
}

// fit returns dsn as the pages recommend it for a driver.
func fit(driver, dsn string) string {
	if driver == "postgres" {
		return with(dsn, "connect_timeout", "5")
	}
	return dsn
}

// examine returns the report on db.
func examine(tb testing.TB, db *sql.DB, opts ...lockdoctor.Option) *lockdoctor.Report {
	tb.Helper()
	r, err := lockdoctor.Check(tb.Context(), db, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// mustBeHealthy checks that no check of r warns.
func mustBeHealthy(tb testing.TB, r *lockdoctor.Report) {
	tb.Helper()
	if r.Worst() != lockdoctor.OK || r.ExitCode() != 0 {
		tb.Errorf("a healthy system, exit code %d:\n%v", r.ExitCode(), r)
	}
	for _, c := range r.Checks {
		if c.Reason == "" || c.Fix != "" && (c.State == lockdoctor.OK || c.State == lockdoctor.Skipped) {
			tb.Errorf("%+v", c)
		}
	}
}

func TestHealthy(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, fit(driver, dsn))
		mustBeHealthy(t, examine(t, db))

		s := dbtest.Session(t, driver, dsn)
		keyed := sqllock.Namespace("export").Keyed([]byte("a secret of sixteen"))
		for _, key := range []sqllock.Key{sqllock.ID(1), sqllock.Pair(2, -3), keyed.Key("user")} {
			dbtest.Lock(t, s, key)
		}
		if _, err := s.TryRLock(t.Context(), sqllock.Pair(4, 5)); err != nil {
			t.Fatal(err)
		}
		r := examine(t, db, lockdoctor.WithSession(s), lockdoctor.WithKeyedNamespace(keyed), lockdoctor.WithFleet(10, 1000))
		mustBeHealthy(t, r)
		if r.Dialect != sqllock.PostgreSQL {
			t.Errorf("dialect %q", r.Dialect)
		}
	})
}

// A pool of two is enough for a Session, and the doctor needs no third one.
func TestHealthySmallPool(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, "pgx", pgtest.Database(t))
	db.SetMaxOpenConns(2)
	s, err := sqllock.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mustBeHealthy(t, examine(t, db, lockdoctor.WithSession(s)))
}

// Every table of latchkey is there, the Session uses the registry, and the
// server keeps what it has committed. A role that owns nothing needs no more
// rights than it has.
func TestHealthyWithAllTables(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"fsync": "on", "synchronous_commit": "on"}))
	for i, driver := range pgtest.Drivers() {
		p := newPlace(t, driver, cluster, i)
		mustBeHealthy(t, examine(t, p.db))
		s := p.session(t, sqllock.WithRegistry(""))
		dbtest.Lock(t, s, sqllock.ID(1))
		mustBeHealthy(t, examine(t, p.db, lockdoctor.WithSession(s)))
		mustBeHealthy(t, examine(t, p.db, lockdoctor.WithSession(s), lockdoctor.WithSchema("public")))
	}
}

// A registry in a schema that the search_path does not have is not denied.
func TestTablesInAnotherSchema(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	dbtest.Execute(t, db, "CREATE SCHEMA ops")
	for _, statement := range lockwatch.Schema(sqllock.PostgreSQL) {
		dbtest.Execute(t, db, strings.Replace(statement, "latchkey_", "ops.latchkey_", 1))
	}
	s := lockdoctor.WithSession(dbtest.Session(t, "pgx", dsn, sqllock.WithRegistry("ops")))
	if c, _ := examine(t, db, s).Find("tables"); !strings.Contains(c.Reason, "WithSchema") {
		t.Errorf("without the schema: %+v", c)
	}
	if c, _ := examine(t, db, s, lockdoctor.WithSchema("ops")).Find("tables"); !strings.HasPrefix(c.Reason, "2 tables") {
		t.Errorf("with the schema: %+v", c)
	}
}

// createAll makes the tables of every feature.
func createAll(tb testing.TB, db *sql.DB) {
	tb.Helper()
	for _, schema := range []func(sqllock.Dialect) []string{
		sqllock.Schema, sqllock.FenceSchema, watermark.Schema, lockwatch.Schema, idempotency.Schema,
	} {
		dbtest.Create(tb, db, schema(sqllock.PostgreSQL))
	}
}

// A pool in session mode is as good as none.
func TestHealthyBehindPgBouncer(t *testing.T) {
	t.Parallel()
	bouncer, err := pgtest.New(t).PgBouncer("session", 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		dsn := fit(driver, bouncer.DSN(""))
		s := dbtest.Session(t, driver, dsn)
		dbtest.Unlock(t, dbtest.Lock(t, s, sqllock.ID(1)))
		mustBeHealthy(t, examine(t, dbtest.Open(t, driver, dsn), lockdoctor.WithSession(s)))
	}
}

// A restart leaves connections in the pool that have ended. The database is
// healthy all the same.
func TestHealthyAfterRestart(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := dbtest.Open(t, driver, fit(driver, cluster.DSN("")))
		mustBeHealthy(t, examine(t, db)) // leaves two idle connections
		if n := db.Stats().Idle; n < 2 {
			t.Fatalf("%d idle connections", n)
		}
		if err := cluster.Restart(false); err != nil {
			t.Fatal(err)
		}
		mustBeHealthy(t, examine(t, db))
	})
}

// A Session that has closed its connection while idle is healthy, and the
// examination does not wake it.
func TestHealthyWhileIdleClosed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := dbtest.Session(t, "pgx", dsn, sqllock.WithIdleClose(time.Second), sqllock.WithHeartbeat(100*time.Millisecond))
	lockertest.Eventually(t, "the connection is closed", func() bool { return s.Stats().IdleClosed })
	r := examine(t, dbtest.Open(t, "pgx", dsn), lockdoctor.WithSession(s))
	mustBeHealthy(t, r)
	if c, _ := r.Find("session"); c.State != lockdoctor.OK || !strings.Contains(c.Reason, "1 closed while idle") {
		t.Errorf("session: %+v", c)
	}
	if !s.Stats().IdleClosed {
		t.Error("the examination has opened the connection")
	}
}

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}
