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

	driver string // the only one that has this fault; empty: any
	since  int    // the first version of PostgreSQL that has it; 0: any
	mender mender // who carries out the statements of the fix
}

// A mender carries out the statements of a fix, after which the check passes.
type mender string

const (
	byRole      mender = "role"
	bySuperuser mender = "superuser"
)

const deadProcesses = `INSERT INTO latchkey_heartbeats SELECT 1, 1, 'epoch', 0, n, '', '', '', 'epoch', 'epoch', 'epoch', false FROM generate_series(1, 1001) AS n`

// inSchema plants, and moves the registry to a schema of its own.
func inSchema(text string) func(*testing.T, *place) {
	return func(t *testing.T, p *place) {
		p.opts = append(p.opts, lockdoctor.WithSchema("Ops"))
		statement(text+`; CREATE SCHEMA "Ops"; GRANT USAGE ON SCHEMA "Ops" TO ROLE;
			ALTER TABLE latchkey_heartbeats SET SCHEMA "Ops"; ALTER TABLE latchkey_waits SET SCHEMA "Ops"`)(t, p)
	}
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
	{name: "the role is read-only", check: "primary", state: lockdoctor.Warning, fix: "ALTER ROLE CURRENT_USER RESET default_transaction_read_only",
		plant: statement("ALTER ROLE ROLE SET default_transaction_read_only = on"), mender: byRole},
	{name: "a lease table where transactions are read-only", check: "primary", state: lockdoctor.Error, fix: "ALTER DATABASE",
		plant: func(t *testing.T, p *place) {
			p.opts = append(p.opts, lockdoctor.WithLeaseTable())
			p.dsn = execMode(p.driver, p.dsn)
			statement("ALTER DATABASE DATABASE SET default_transaction_read_only = on")(t, p)
		}},
	{name: "a short statement_timeout of the database", check: "timeouts", state: lockdoctor.Warning, fix: "ALTER DATABASE … RESET statement_timeout",
		plant: statement("ALTER DATABASE DATABASE SET statement_timeout = '900ms'")},
	{name: "a short idle_in_transaction_session_timeout of the role", check: "timeouts", state: lockdoctor.Warning, fix: "ALTER ROLE CURRENT_USER RESET idle_in_transaction_session_timeout",
		plant: statement("ALTER ROLE ROLE SET idle_in_transaction_session_timeout = '2s'"), mender: byRole},
	{name: "a short lock_timeout of the role in the database", check: "timeouts", state: lockdoctor.Warning, fix: "IN DATABASE … RESET lock_timeout",
		plant: statement("ALTER ROLE ROLE IN DATABASE DATABASE SET lock_timeout = '10ms'")},
	{name: "a short transaction_timeout of the role", check: "timeouts", state: lockdoctor.Warning, fix: "ALTER ROLE CURRENT_USER RESET transaction_timeout",
		plant: statement("ALTER ROLE ROLE SET transaction_timeout = '8s'"), since: 17},
	{name: "a database that may have one connection", check: "connections", state: lockdoctor.Error, fix: "ALTER DATABASE … CONNECTION LIMIT",
		plant: func(t *testing.T, p *place) {
			statement("ALTER DATABASE DATABASE CONNECTION LIMIT 1")(t, p)
			_ = p.admin.Close() // its connection counts until the server has ended it
			lockertest.Eventually(t, "the one is free", func() bool { return p.db.PingContext(t.Context()) == nil })
		}},
	{name: "more locks than the lock table has room for", check: "lock-table", state: lockdoctor.Warning, fix: "Raise max_locks_per_transaction to at least 500",
		plant: func(_ *testing.T, p *place) {
			p.opts = append(p.opts, lockdoctor.WithFleet(1, 50_000)) // 200 connections
		}},
	{name: "a pool of one", check: "pool", state: lockdoctor.Error, fix: "SetMaxOpenConns(5)", plant: func(_ *testing.T, p *place) { p.db.SetMaxOpenConns(1) }},
	{name: "a right on a table was taken away", check: "rights", state: lockdoctor.Error, fix: "GRANT UPDATE ON latchkey_fence",
		plant: statement("REVOKE UPDATE ON latchkey_fence FROM ROLE")},
	{name: "a right on the registry was taken away", check: "rights", state: lockdoctor.Warning, fix: "GRANT DELETE ON latchkey_waits",
		plant: statement("REVOKE DELETE ON latchkey_waits FROM ROLE")},
	{name: "the functions of tokens are taken away", check: "rights", state: lockdoctor.Error, fix: "GRANT EXECUTE",
		plant: statement("REVOKE EXECUTE ON FUNCTION pg_control_system FROM PUBLIC")},
	{name: "holders of other roles cannot be seen", check: "rights", state: lockdoctor.Warning, fix: "pg_read_all_stats",
		plant: func(t *testing.T, p *place) {
			dbtest.ExecuteOn(t, dbtest.Conn(t, p.admin), "BEGIN; SELECT pg_advisory_lock(1)")
		}},
	{name: "a column of the registry is missing", check: "tables", state: lockdoctor.Warning, fix: "lockwatch.Schema", plant: statement("ALTER TABLE latchkey_heartbeats DROP COLUMN shared")},
	{name: "a later version has made the watermarks", check: "tables", state: lockdoctor.Error, fix: "the version of latchkey that has made it",
		plant: statement("ALTER TABLE latchkey_watermarks ADD COLUMN later int NOT NULL")},
	{name: "the fence has no constraint", check: "tables", state: lockdoctor.Error, fix: "ADD CONSTRAINT latchkey_fence_stale",
		plant: statement("ALTER TABLE latchkey_fence DROP CONSTRAINT latchkey_fence_stale"), mender: bySuperuser},
	{name: "the watermarks have no primary key", check: "tables", state: lockdoctor.Error, fix: "watermark.Schema",
		plant: statement("ALTER TABLE latchkey_watermarks DROP CONSTRAINT latchkey_watermarks_pkey")},
	{name: "the responses are not logged", check: "tables", state: lockdoctor.Error, fix: "SET LOGGED", plant: statement("ALTER TABLE latchkey_responses SET UNLOGGED"), mender: bySuperuser},
	{name: "row security hides the fence", check: "tables", state: lockdoctor.Error, fix: "DISABLE ROW LEVEL SECURITY",
		plant: statement("ALTER TABLE latchkey_fence ENABLE ROW LEVEL SECURITY"), mender: bySuperuser},
	{name: "half of the registry is missing", check: "tables", state: lockdoctor.Warning, fix: "lockwatch.Schema", plant: statement("DROP TABLE latchkey_waits")},
	{name: "the registry is a view", check: "tables", state: lockdoctor.Warning, fix: "lockwatch.Schema",
		plant: statement("ALTER TABLE latchkey_waits RENAME TO w; CREATE VIEW latchkey_waits AS SELECT * FROM w")},
	{name: "the registry belongs to a stranger", check: "tables", state: lockdoctor.Warning, fix: "OWNER TO CURRENT_USER",
		plant: func(t *testing.T, p *place) {
			stranger := strings.Replace(p.role, "service", "stranger", 1)
			p.execute(t, "CREATE ROLE "+stranger+"; ALTER TABLE latchkey_heartbeats OWNER TO "+stranger)
		}},
	{name: "the lease tables are in two schemas", check: "tables", state: lockdoctor.Error, fix: "one schema",
		plant: func(t *testing.T, p *place) {
			p.execute(t, "CREATE SCHEMA other; GRANT USAGE ON SCHEMA other TO ROLE; ALTER TABLE latchkey_tokens SET SCHEMA other")
			inDSN("search_path", "other,public")(t, p)
		}},
	{name: "commits do not wait for the disk", check: "durability", state: lockdoctor.Warning, fix: "synchronous_commit", plant: inDSN("synchronous_commit", "off")},
	{name: "the registry is full of dead processes", check: "registry", state: lockdoctor.Warning, fix: "DELETE FROM latchkey_heartbeats", plant: statement(deadProcesses), mender: byRole},
	{name: "a registry in a schema is full of dead processes", check: "registry", state: lockdoctor.Warning, fix: "DELETE FROM", plant: inSchema(deadProcesses), mender: byRole},
	{name: "row security hides a registry in a schema", check: "tables", state: lockdoctor.Warning, fix: "DISABLE ROW LEVEL SECURITY",
		plant: inSchema("ALTER TABLE latchkey_waits ENABLE ROW LEVEL SECURITY"), mender: bySuperuser},
	{name: "another process has another key secret", check: "secrets", state: lockdoctor.Error, fix: "the same secret",
		plant: func(t *testing.T, p *place) {
			theirs, ours := sqllock.Namespace("export").Keyed([]byte("theirs")), sqllock.Namespace("export").Keyed([]byte("ours"))
			dbtest.Lock(t, dbtest.Session(t, p.driver, p.dsn), theirs.Key("user"))
			p.session(t)
			p.opts = append(p.opts, lockdoctor.WithKeyedNamespace(ours))
		}},
	{name: "the socket is not found", check: "socket", state: lockdoctor.Warning, fix: "sqllock.WithSocket",
		plant: func(t *testing.T, p *place) {
			p.session(t, sqllock.WithSocket(func(any) net.Conn { return nil }))
		}},
	{name: "a table of leases, and a driver that prepares", check: "driver", state: lockdoctor.Error, fix: "default_query_exec_mode=exec",
		plant: func(t *testing.T, p *place) {
			p.opts = append(p.opts, lockdoctor.WithLeaseTable())
		}, driver: "pgx"}, // lib/pq does not prepare what has no arguments
	{name: "several hosts, and a standby would do", check: "driver", state: lockdoctor.Warning, fix: "target_session_attrs=read-write",
		plant: func(t *testing.T, p *place) {
			p.dsn = strings.Replace(p.dsn, "@127.0.0.1:", "@127.0.0.1:1,127.0.0.1:", 1)
			p.reopen(t)
		}, driver: "pgx"}, // lib/pq knows several hosts since 1.11: see TestDoctorSeveralHosts
	{name: "no connect_timeout", check: "driver", state: lockdoctor.Warning, fix: "connect_timeout=5",
		plant: func(t *testing.T, p *place) {
			p.dsn = strings.Replace(p.dsn, "connect_timeout=5&", "", 1)
			p.reopen(t)
		}, driver: "postgres"}, // pgx heeds its context in a handshake
}

// execMode keeps pgx from preparing statements.
func execMode(driver, dsn string) string {
	if driver != "pgx" {
		return dsn
	}
	return with(dsn, "default_query_exec_mode", "exec")
}

// The doctor finds what is planted. Where it names statements, they can be
// carried out, and the check passes then. The drivers take turns.
func TestPlanted(t *testing.T) {
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"fsync": "on", "synchronous_commit": "on"}))
	t.Run("all", func(t *testing.T) { // which ends after its parallel tests, and before the cluster
		for i, tt := range plantings {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				driver := tt.driver
				if driver == "" {
					driver = pgtest.Drivers()[i%2]
				}
				p := newPlace(t, driver, cluster, i)
				since(t, p.admin, tt.since)
				tt.plant(t, p)
				r := examine(t, p.db, p.opts...)
				mustFind(t, r, tt.check, tt.state, tt.fix)
				for _, secret := range []string{p.role, p.name, "127.0.0.1", p.dsn} {
					if strings.Contains(r.String(), secret) {
						t.Errorf("the report names %q:\n%v", secret, r)
					}
				}
				if tt.mender != "" {
					p.mend(t, r, tt)
				}
			})
		}
	})
}

// since skips the test if the server is older than a major version.
func since(t *testing.T, db *sql.DB, major int) {
	t.Helper()
	if dbtest.Number(t, db, "SELECT current_setting('server_version_num')::int") < major*10000 {
		t.Skipf("PostgreSQL %d is the first that has this", major)
	}
}

// mend carries out the statements that r names, and examines again.
func (p *place) mend(t *testing.T, r *lockdoctor.Report, tt planting) {
	t.Helper()
	found, _ := r.Find(tt.check)
	db := p.admin
	if tt.mender == byRole {
		db = p.db
	}
	conn := dbtest.Conn(t, db)
	for line := range strings.Lines(found.Fix) {
		if fix, _, isStatement := strings.Cut(line, ";"); isStatement {
			dbtest.ExecuteOn(t, conn, fix)
		}
	}
	_ = conn.Close()
	p.reopen(t)
	if after, _ := examine(t, p.db, p.opts...).Find(tt.check); after.State != lockdoctor.OK {
		t.Errorf("after %q: %+v", found.Fix, after)
	}
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
