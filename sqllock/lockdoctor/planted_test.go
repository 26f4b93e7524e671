package lockdoctor_test

import (
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// A place is a database with a role of its own, which owns nothing. Every table
// of latchkey is there, with the rights that the role needs.
type place struct {
	driver, dsn string // the DSN is that of the role
	role, name  string // the name of the database
	cluster     *pgtest.Cluster
	admin       *sql.DB
	db          *sql.DB // of the role
	opts        []lockdoctor.Option
}

func newPlace(t *testing.T, driver string, cluster *pgtest.Cluster, number int) *place {
	t.Helper()
	admin, err := cluster.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(fit(driver, admin))
	if err != nil {
		t.Fatal(err)
	}
	p := &place{driver: driver, role: fmt.Sprintf("service_%s_%d", driver, number), name: strings.TrimPrefix(u.Path, "/"), cluster: cluster}
	p.admin = dbtest.Open(t, driver, fit(driver, admin))
	createAll(t, p.admin)
	p.execute(t, "CREATE ROLE ROLE LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ROLE")
	u.User = url.User(p.role)
	p.dsn = u.String()
	p.reopen(t)
	return p
}

// reopen gives the place a new pool, whose connections have the settings that
// were made meanwhile.
func (p *place) reopen(t *testing.T) {
	t.Helper()
	if p.db != nil {
		_ = p.db.Close()
	}
	lockertest.Eventually(t, "the role has no connection", func() bool {
		return dbtest.Number(t, p.admin, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+p.role+"'") == 0
	})
	p.db = dbtest.Open(t, p.driver, p.dsn)
}

// execute runs a statement as a superuser. ROLE and DATABASE stand for those of
// the place.
func (p *place) execute(t *testing.T, statement string) {
	t.Helper()
	dbtest.Execute(t, p.admin, strings.NewReplacer("ROLE ROLE", "ROLE "+p.role, "TO ROLE", "TO "+p.role, "FROM ROLE", "FROM "+p.role, "DATABASE DATABASE", "DATABASE "+p.name).Replace(statement))
}

// session opens a Session of the place, which the doctor examines.
func (p *place) session(t *testing.T, opts ...sqllock.Option) *sqllock.Session {
	t.Helper()
	s := dbtest.Session(t, p.driver, p.dsn, opts...)
	p.opts = append(p.opts, lockdoctor.WithSession(s))
	return s
}

// A planting is a misconfiguration, and what the doctor must say of it.
type planting struct {
	name  string
	check string
	state lockdoctor.State
	fix   string // a part of it
	plant func(t *testing.T, p *place)
}

// statement plants by a statement of a superuser.
func statement(text string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.execute(t, text)
		p.reopen(t)
	}
}

// inDSN plants by a parameter of the connection string.
func inDSN(name, value string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.dsn = with(p.dsn, name, value)
		p.reopen(t)
	}
}

var plantings = []planting{
	{"the role is read-only", "primary", lockdoctor.Warning, "ALTER ROLE CURRENT_USER RESET default_transaction_read_only",
		statement("ALTER ROLE ROLE SET default_transaction_read_only = on")},
	{"a lease table where transactions are read-only", "primary", lockdoctor.Error, "ALTER DATABASE", func(t *testing.T, p *place) {
		p.opts = append(p.opts, lockdoctor.WithLeaseTable())
		p.dsn = execMode(p.driver, p.dsn)
		statement("ALTER DATABASE DATABASE SET default_transaction_read_only = on")(t, p)
	}},
	{"a short statement_timeout of the database", "timeouts", lockdoctor.Warning, "ALTER DATABASE … RESET statement_timeout",
		statement("ALTER DATABASE DATABASE SET statement_timeout = '900ms'")},
	{"a short idle_in_transaction_session_timeout of the role", "timeouts", lockdoctor.Warning, "ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout",
		statement("ALTER ROLE ROLE SET idle_in_transaction_session_timeout = '2s'")},
	{"a short lock_timeout of the role in the database", "timeouts", lockdoctor.Warning, "IN DATABASE … RESET lock_timeout",
		statement("ALTER ROLE ROLE IN DATABASE DATABASE SET lock_timeout = '10ms'")},
	{"a short idle_session_timeout in the connection string", "timeouts", lockdoctor.Warning, "Take idle_session_timeout out of the connection string",
		inDSN("idle_session_timeout", "9000")},
	{"a short transaction_timeout of the role", "timeouts", lockdoctor.Warning, "ALTER ROLE CURRENT_USER RESET transaction_timeout", func(t *testing.T, p *place) {
		since(t, p.admin, 17)
		statement("ALTER ROLE ROLE SET transaction_timeout = '8s'")(t, p)
	}},
	{"a role that may have one connection", "connections", lockdoctor.Error, "ALTER ROLE CURRENT_USER CONNECTION LIMIT",
		statement("ALTER ROLE ROLE CONNECTION LIMIT 1")},
	{"a database that may have one connection", "connections", lockdoctor.Error, "ALTER DATABASE … CONNECTION LIMIT", func(t *testing.T, p *place) {
		statement("ALTER DATABASE DATABASE CONNECTION LIMIT 1")(t, p)
		_ = p.admin.Close() // its connection would count, too
		server := dbtest.Open(t, p.driver, p.cluster.DSN(""))
		lockertest.Eventually(t, "the database has no connection", func() bool {
			return dbtest.Number(t, server, "SELECT count(*) FROM pg_stat_activity WHERE datname = '"+p.name+"'") == 0
		})
	}},
	{"more instances than connections", "connections", lockdoctor.Warning, "Raise max_connections", func(_ *testing.T, p *place) {
		p.opts = append(p.opts, lockdoctor.WithFleet(100, 1))
	}},
	{"more locks than the lock table has room for", "lock-table", lockdoctor.Warning, "Raise max_locks_per_transaction to at least 500", func(_ *testing.T, p *place) {
		p.opts = append(p.opts, lockdoctor.WithFleet(1, 50_000)) // 200 connections
	}},
	{"a pool of one", "pool", lockdoctor.Error, "SetMaxOpenConns(5)", func(_ *testing.T, p *place) { p.db.SetMaxOpenConns(1) }},
	{"a right on a table was taken away", "rights", lockdoctor.Error, "GRANT UPDATE ON latchkey_fence", statement("REVOKE UPDATE ON latchkey_fence FROM ROLE")},
	{"a right on the registry was taken away", "rights", lockdoctor.Warning, "GRANT DELETE ON latchkey_waits", statement("REVOKE DELETE ON latchkey_waits FROM ROLE")},
	{"the lease tables are missing and cannot be made", "rights", lockdoctor.Error, "sqllock.Schema", func(t *testing.T, p *place) {
		p.opts = append(p.opts, lockdoctor.WithLeaseTable())
		p.dsn = execMode(p.driver, p.dsn)
		statement("DROP TABLE latchkey_locks; REVOKE CREATE ON SCHEMA public FROM PUBLIC")(t, p)
	}},
	{"the functions of tokens are taken away", "rights", lockdoctor.Error, "GRANT EXECUTE", statement("REVOKE EXECUTE ON FUNCTION pg_control_system FROM PUBLIC")},
	{"holders of other roles cannot be seen", "rights", lockdoctor.Warning, "pg_read_all_stats", func(t *testing.T, p *place) {
		dbtest.ExecuteOn(t, dbtest.Conn(t, p.admin), "BEGIN; SELECT pg_advisory_lock(1)")
	}},
	{"a column of the registry is missing", "tables", lockdoctor.Warning, "lockwatch.Schema", statement("ALTER TABLE latchkey_heartbeats DROP COLUMN shared")},
	{"a column of the fence has another type", "tables", lockdoctor.Error, "sqllock.FenceSchema", statement("ALTER TABLE latchkey_fence ALTER lsn TYPE text")},
	{"the fence has no constraint", "tables", lockdoctor.Error, "ADD CONSTRAINT latchkey_fence_stale", statement("ALTER TABLE latchkey_fence DROP CONSTRAINT latchkey_fence_stale")},
	{"the watermarks have no primary key", "tables", lockdoctor.Error, "watermark.Schema", statement("ALTER TABLE latchkey_watermarks DROP CONSTRAINT latchkey_watermarks_pkey")},
	{"the responses are not logged", "tables", lockdoctor.Error, "SET LOGGED", statement("ALTER TABLE latchkey_responses SET UNLOGGED")},
	{"row security hides the fence", "tables", lockdoctor.Error, "DISABLE ROW LEVEL SECURITY", statement("ALTER TABLE latchkey_fence ENABLE ROW LEVEL SECURITY")},
	{"half of the registry is missing", "tables", lockdoctor.Warning, "lockwatch.Schema", statement("DROP TABLE latchkey_waits")},
	{"the registry is a view", "tables", lockdoctor.Warning, "lockwatch.Schema", statement("ALTER TABLE latchkey_waits RENAME TO w; CREATE VIEW latchkey_waits AS SELECT * FROM w")},
	{"the registry belongs to a stranger", "tables", lockdoctor.Warning, "OWNER TO CURRENT_USER", func(t *testing.T, p *place) {
		stranger := strings.Replace(p.role, "service", "stranger", 1)
		p.execute(t, "CREATE ROLE "+stranger+"; ALTER TABLE latchkey_heartbeats OWNER TO "+stranger)
	}},
	{"the lease tables are in two schemas", "tables", lockdoctor.Error, "one schema", func(t *testing.T, p *place) {
		p.execute(t, "CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO ROLE; ALTER TABLE latchkey_tokens SET SCHEMA other")
		inDSN("search_path", "other,public")(t, p)
	}},
	{"commits do not wait for the disk", "durability", lockdoctor.Warning, "synchronous_commit", inDSN("synchronous_commit", "off")},
	{"the registry is full of dead processes", "registry", lockdoctor.Warning, "DELETE FROM latchkey_heartbeats", statement(
		`INSERT INTO latchkey_heartbeats SELECT 1, 1, 'epoch', 0, n, '', '', '', 'epoch', 'epoch', 'epoch', false FROM generate_series(1, 1001) AS n`)},
	{"another process has another key secret", "secrets", lockdoctor.Error, "the same secret", func(t *testing.T, p *place) {
		theirs, ours := sqllock.Namespace("export").Keyed([]byte("theirs")), sqllock.Namespace("export").Keyed([]byte("ours"))
		dbtest.Lock(t, dbtest.Session(t, p.driver, p.dsn), theirs.Key("user"))
		p.opts = append(p.opts, lockdoctor.WithKeyedNamespace(ours))
	}},
	{"another program uses the key space", "neighbours", lockdoctor.Warning, "a database of its own", func(t *testing.T, p *place) {
		dbtest.ExecuteOn(t, dbtest.Conn(t, p.db), "SELECT pg_advisory_lock(42)")
	}},
	{"the socket is not found", "socket", lockdoctor.Warning, "sqllock.WithSocket", func(t *testing.T, p *place) {
		p.session(t, sqllock.WithSocket(func(any) net.Conn { return nil }))
	}},
	{"a Session is on another database of the server", "audit", lockdoctor.Error, "name the same database", func(t *testing.T, p *place) {
		s := dbtest.Session(t, p.driver, p.cluster.DSN(""))
		dbtest.Lock(t, s, sqllock.Namespace(p.name).Key(""))
		p.opts = append(p.opts, lockdoctor.WithSession(s))
	}},
	{"a table of leases, and a driver that prepares", "driver", lockdoctor.Error, "default_query_exec_mode=exec", func(t *testing.T, p *place) {
		if p.driver != "pgx" {
			t.Skip("lib/pq does not prepare what has no arguments")
		}
		p.opts = append(p.opts, lockdoctor.WithLeaseTable())
	}},
	{"several hosts, and a standby would do", "driver", lockdoctor.Warning, "target_session_attrs=read-write", func(t *testing.T, p *place) {
		if p.driver != "pgx" {
			t.Skip("lib/pq knows several hosts since 1.11: see TestDoctorSeveralHosts")
		}
		p.dsn = strings.Replace(p.dsn, "@127.0.0.1:", "@127.0.0.1:1,127.0.0.1:", 1)
		p.reopen(t)
	}},
	{"no connect_timeout", "driver", lockdoctor.Warning, "connect_timeout=5", func(t *testing.T, p *place) {
		if p.driver != "postgres" {
			t.Skip("pgx heeds its context in a handshake")
		}
		p.dsn = strings.Replace(p.dsn, "connect_timeout=5&", "", 1)
		p.reopen(t)
	}},
	{"no such database", "connection", lockdoctor.Error, "Correct the user, the password or the database", func(t *testing.T, p *place) {
		p.dsn = strings.Replace(p.dsn, p.name, "nowhere", 1)
		p.reopen(t)
	}},
	{"what merely resembles PostgreSQL", "connection", lockdoctor.Error, "WithLeaseTable()", func(t *testing.T, p *place) {
		conn := dbtest.Conn(t, p.admin)
		dbtest.ExecuteOn(t, conn, "SET allow_system_table_mods = on")
		dbtest.ExecuteOn(t, conn, "ALTER FUNCTION pg_catalog.version() RENAME TO own_version")
		dbtest.ExecuteOn(t, conn, "CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v1'::text $$")
	}},
}

// execMode keeps pgx from preparing statements.
func execMode(driver, dsn string) string {
	if driver != "pgx" {
		return dsn
	}
	return with(dsn, "default_query_exec_mode", "exec")
}

// The doctor has nothing to say before a misconfiguration is planted, and finds
// it afterwards.
func TestPlanted(t *testing.T) {
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"fsync": "on", "synchronous_commit": "on"}))
	t.Run("all", func(t *testing.T) { // which ends after its parallel tests, and before the cluster
		for i, tt := range plantings {
			for _, driver := range pgtest.Drivers() {
				t.Run(tt.name+"/"+driver, func(t *testing.T) {
					t.Parallel()
					p := newPlace(t, driver, cluster, i)
					mustBeHealthy(t, examine(t, p.db))
					tt.plant(t, p)
					r := examine(t, p.db, p.opts...)
					mustFind(t, r, tt.check, tt.state, tt.fix)
					for _, secret := range []string{p.role, p.name, "127.0.0.1", p.dsn} {
						if strings.Contains(r.String(), secret) {
							t.Errorf("the report names %q:\n%v", secret, r)
						}
					}
				})
			}
		}
	})
}

// mustFind checks that the check of a name has found a fault, with a fix.
func mustFind(tb testing.TB, r *lockdoctor.Report, check string, state lockdoctor.State, fix string) {
	tb.Helper()
	c, _ := r.Find(check)
	if c.State != state || c.Reason == "" || !strings.Contains(c.Fix, fix) {
		tb.Errorf("%s is %q with the fix %q, want %q with %q in:\n%v", check, c.State, c.Fix, state, fix, r)
	}
	if code := r.ExitCode(); code == 0 || state == lockdoctor.Error && code != 2 {
		tb.Errorf("exit code %d", code)
	}
}
