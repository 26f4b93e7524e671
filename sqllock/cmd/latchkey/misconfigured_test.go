//go:build linux

package main

import (
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// secret is in a part of each address that no output may hold.
const secret = "hunter2"

// ofGo matches what a person at the command line cannot use.
var ofGo = regexp.MustCompile(`\bWith[A-Z]\w*|SetMaxOpenConns|PerTx|lockwatch\.Inspect|NewMemory`)

// A site is a database for a misconfiguration, with a role that owns nothing.
type site struct {
	t       *testing.T
	servers *servers
	name    string // of the database
	role    string
	admin   *sql.DB
	address string // of the role
	pid     int    // of a server process that the plant has left
}

func newSite(t *testing.T, v *servers, number int) *site {
	t.Helper()
	dsn, err := v.tls.CreateDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, servers: v, name: strings.TrimPrefix(u.Path, "/"), role: fmt.Sprintf("%s_%d", secret, number), admin: dbtest.Open(t, "pgx", dsn)}
	s.execute("CREATE ROLE ROLE LOGIN PASSWORD 'right'")
	u.User = url.UserPassword(s.role, "right")
	s.address = u.String()
	return s
}

// execute runs a statement as a superuser. ROLE and HERE stand for the role and
// the database.
func (s *site) execute(statement string) {
	s.t.Helper()
	text := strings.NewReplacer("ROLE ROLE", "ROLE "+s.role, "TO ROLE", "TO "+s.role, "FROM ROLE", "FROM "+s.role, "DATABASE HERE", "DATABASE "+s.name).Replace(statement)
	if _, err := s.admin.ExecContext(s.t.Context(), text); err != nil {
		s.t.Fatal(err)
	}
}

// replaced plants by another text in the address.
func replaced(old, with string) func(*site) {
	return func(s *site) { s.address = strings.Replace(s.address, old, with, 1) }
}

// parameter plants by a parameter of the address.
func parameter(text string) func(*site) {
	return func(s *site) { s.address += "&" + text }
}

// executed plants by a statement.
func executed(statement string) func(*site) { return func(s *site) { s.execute(statement) } }

// An operator learns from the command alone what is wrong with an address, or
// with the database that it leads to: an address that is not understood by any
// subcommand, and the rest by the doctor.
func TestMisconfigured(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), secret)
	for _, tt := range []struct{ name, address, says string }{
		{"a port that is no number", "postgres://u:hunter2@localhost:54x2/d", "the port"},
		{"a port in keywords", "host=localhost port=54x2 password=hunter2", "the port"},
		{"a port of MySQL", "mysql://u:hunter2@localhost:33o6/d", "the port"},
		{"a slash in the password", "postgres://u:hunter2/4@localhost/d", "%2F"},
		{"a % in the password", "postgres://u:100%hunter2@localhost/d", "%25"},
		{"a space", "postgres://u:hunter2@local host/d", "%20"},
		{"a host that is none", "mysql://u:hunter2@local host/d", "the host"},
		{"a wrong scheme", "postgrs://u:hunter2@localhost/d", "the scheme"},
		{"no scheme", "u:hunter2@localhost/d", "the scheme"},
		{"a wrong scheme before a file", "sqlite3:hunter2.db", "sqlite:/path/to/file"},
		{"a wrong scheme before a path", "sqlite3:///hunter2.db", "sqlite:/path/to/file"},
		{"a setting without a value", "host=localhost password=hunter2 sslmode", "a parameter"},
		{"a wrong sslmode", "postgres://u:hunter2@localhost/d?sslmode=on", "sslmode is"},
		{"no sslmode", "postgres://u:hunter2@localhost/d?sslmode", "sslmode is"},
		{"no certificate", "postgres://u:p@localhost/d?sslmode=verify-full&sslrootcert=" + missing, "sslrootcert"},
		{"no certificate of the client", "postgres://u:p@localhost/d?sslcert=" + missing + "&sslkey=" + missing, "sslkey"},
		{"a certificate without its key", "postgres://u:p@localhost/d?sslcert=" + missing, "sslkey"},
		{"TLS of MySQL", "mysql://u:hunter2@localhost/d?tls=on", "tls is"},
		{"a wrong target_session_attrs", "postgres://u:hunter2@localhost/d?target_session_attrs=primry", "target_session_attrs"},
		{"a service that is not known", "postgres://u:hunter2@localhost/d?service=nowhere&servicefile=" + missing, "service"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := start(t, tt.address, "doctor")
			p.wantCode(exitConfig)
			if text := p.said(); !strings.Contains(text, tt.says) || strings.Contains(text, secret) || strings.Contains(text, "localhost") {
				t.Errorf("it says %q, want %q in it", text, tt.says)
			}
		})
	}
}

// Servers that the misconfigurations share.
type servers struct {
	tls, plain       *pgtest.Cluster // the first one asks for passwords
	standby, bouncer string          // addresses, which lead to plain
}

func newServers(t *testing.T) *servers {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { //nolint:gosec // the server has another user
		t.Fatal(err)
	}
	hba := filepath.Join(dir, "hba")
	const rules = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(hba, []byte(rules), 0o644); err != nil { //nolint:gosec // the same
		t.Fatal(err)
	}
	v := &servers{
		tls:   pgtest.New(t, pgtest.WithTLS(), pgtest.WithSettings(map[string]string{"hba_file": hba})),
		plain: pgtest.New(t, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "10", "max_connections": "40"})),
	}
	standby, err := v.plain.Standby()
	if err != nil {
		t.Fatal(err)
	}
	bouncer, err := v.plain.PgBouncer("transaction", 3)
	if err != nil {
		t.Fatal(err)
	}
	v.standby, v.bouncer = standby.DSN(""), bouncer.DSN("")
	return v
}

// A misconfiguration is planted in a database. The doctor names it in one check.
type misconfiguration struct {
	name  string
	plant func(*site)
	args  []string // of the doctor
	state string
	check string
	says  []string
}

// address plants by another address.
func address(of func(*site) string) func(*site) { return func(s *site) { s.address = of(s) } }

const withLeaseTable, oldServer = "--" + leaseTableFlag, `ALTER FUNCTION pg_catalog.current_setting(text) RENAME TO own_setting;
	CREATE FUNCTION pg_catalog.current_setting(text) RETURNS text STABLE LANGUAGE sql
	AS $$ SELECT CASE $1 WHEN 'server_version_num' THEN '130018' ELSE pg_catalog.own_setting($1) END $$`

var misconfigurations = []misconfiguration{
	// The server does not let the client in.
	{"no server at the port", address(func(s *site) string { return "postgres://u:hunter2@127.0.0.1:1/d" }), nil, "error", "connection", []string{"refused", "port"}},
	{"the port of MariaDB", address(func(s *site) string { return "postgres://u:hunter2@" + mariadb(s.t).Addr + "/d" }), nil, "error", "connection", []string{"scheme", "port"}},
	{"a wrong password", replaced(":right@", ":hunter2@"), nil, "error", "connection", []string{"password"}},
	{"a wrong password of MariaDB", address(func(s *site) string { return "mysql://root:hunter2@" + mariadb(s.t).Addr + "/d" }), nil, "error", "connection", []string{"Correct the user, the password"}},
	{"no such database", address(func(s *site) string { return strings.Replace(s.address, s.name, "hunter2", 1) }), nil, "error", "connection", []string{"no such database"}},
	{"a mistyped parameter", parameter("sslmod=require"), nil, "error", "connection", []string{"parameter of the connection string"}},
	{"a parameter of MariaDB", address(func(s *site) string {
		return "mysql://root@" + mariadb(s.t).Addr + "/" + mariadb(s.t).DBName + "?nosuch=1"
	}), nil, "error", "connection", []string{"parameter of the connection string"}},
	{"a parameter of another pool", parameter("pool_max_conns=1"), nil, "error", "connection", []string{"parameter of the connection string", "pool_max_conns"}},
	{"a server without TLS", address(func(s *site) string { return pgtest.OverTLS(s.servers.plain.DSN("")) }), nil, "error", "connection", []string{"TLS", "sslmode"}},
	{"a certificate of no authority", replaced("sslmode=disable", "sslmode=verify-full"), nil, "error", "connection", []string{"certificate", "sslrootcert"}},
	{"only a standby where a primary is demanded", address(func(s *site) string { return s.servers.standby + "&target_session_attrs=primary" }), nil, "error", "connection", []string{"target_session_attrs"}},
	{"a directory for a file of SQLite", address(func(s *site) string { return "sqlite:" + s.t.TempDir() }), nil, "error", "connection", []string{"Correct the path"}},
	{"no right to connect", executed("REVOKE CONNECT ON DATABASE HERE FROM PUBLIC"), nil, "error", "connection", []string{"CONNECT"}},
	{"a role that may not log in", executed("ALTER ROLE ROLE NOLOGIN"), nil, "error", "connection", []string{"may not log in", "ALTER ROLE … LOGIN"}},
	{"a password that has expired", executed("ALTER ROLE ROLE VALID UNTIL '2000-01-01'"), nil, "error", "connection", []string{"VALID UNTIL"}},
	{"a role that may have no connection", executed("ALTER ROLE ROLE CONNECTION LIMIT 0"), nil, "error", "connection", []string{"CONNECTION LIMIT of the role"}},
	{"a parameter that PgBouncer does not know", address(func(s *site) string { return s.servers.bouncer + "&search_path=public" }), nil, "error", "connection", []string{"PgBouncer", "parameters"}},

	// The client is in, and locks do not exclude or would fail.
	{"PgBouncer in transaction mode", address(func(s *site) string { return s.servers.bouncer }), nil, "error", "exclusion", []string{"pooler", withLeaseTable}},
	{"a server that resembles PostgreSQL", executed(`ALTER FUNCTION pg_catalog.version() RENAME TO own_version;
		CREATE FUNCTION pg_catalog.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v1'::text $$`), nil, "error", "connection", []string{"CockroachDB", withLeaseTable}},
	{"an old server", executed(oldServer), nil, "error", "version", []string{"PostgreSQL 14"}},
	{"a revoked function", executed("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint) FROM PUBLIC"), nil, "error", "exclusion", []string{"GRANT EXECUTE ON FUNCTION pg_try_advisory_lock(bigint)"}},
	{"a revoked function, by its rights", executed("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_advisory_unlock(bigint) FROM PUBLIC"), nil, "error", "rights", []string{"GRANT EXECUTE ON FUNCTION pg_advisory_unlock(bigint)"}},
	{"no lease table, and no right to make one", executed("REVOKE CREATE ON SCHEMA public FROM PUBLIC"), []string{withLeaseTable}, "error", "rights", []string{"sqllock.Schema"}},
	{"no search_path for the lease tables", executed("ALTER ROLE ROLE SET search_path = ''"), []string{withLeaseTable}, "error", "rights", []string{"search_path"}},
	{"no right to list locks", executed("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_lock_status() FROM PUBLIC"), nil, "error", "neighbours", []string{"pg_lock_status"}},
	{"no right to ask for a standby", executed("REVOKE EXECUTE ON FUNCTION pg_catalog.pg_is_in_recovery() FROM PUBLIC"), nil, "error", "exclusion", []string{"pg_is_in_recovery"}},
	{"a lock table that is nearly full", func(s *site) {
		s.hold(s.servers.plain.DSN(""), "SELECT pg_advisory_lock(n) FROM generate_series(1, 280) AS n")
		s.address = s.servers.plain.DSN("")
	}, nil, "error", "lock-table", []string{"pg_terminate_backend(PID)", "Raise max_locks_per_transaction to at least"}},
	{"a file of SQLite in memory", address(func(*site) string { return "sqlite::memory:" }), nil, "error", "file", []string{"in memory"}},

	// Locks work, and may fail later.
	{"a short idle_session_timeout", parameter("idle_session_timeout=9000"), nil, "warning", "timeouts", []string{"Take idle_session_timeout out of the connection string"}},
	{"locks of another program", func(s *site) { s.hold(s.address, "SELECT pg_advisory_lock(42)") }, nil, "warning", "neighbours", []string{"PID"}},
	{"a mistyped schema", func(*site) {}, []string{"--schema", "nosuch"}, "warning", "tables", []string{"schema that was named"}},
	{"a fleet that is too large", func(*site) {}, []string{"--instances", "100", "--locks", "1"}, "warning", "connections", []string{"Raise max_connections"}},
}

// hold sends a statement on a connection that stays open. PID stands for its
// server process.
func (s *site) hold(address, statement string) {
	s.t.Helper()
	conn := dbtest.Conn(s.t, dbtest.Open(s.t, "pgx", address))
	dbtest.ExecuteOn(s.t, conn, statement)
	s.pid = dbtest.BackendPID(s.t, conn)
}

// mariadb returns a database of MariaDB, as its driver reads the address.
func mariadb(t *testing.T) *mysql.Config {
	t.Helper()
	config, err := mysql.ParseDSN(mariadbtest.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// The doctor names what is planted in a database, in words for this command. It
// names no address, and no other check contradicts it.
func TestDoctorOfMisconfigurations(t *testing.T) {
	t.Parallel()
	v := newServers(t)
	t.Run("all", func(t *testing.T) { // which ends before the servers do
		for i, tt := range misconfigurations {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, v, i)
				tt.plant(s)
				p := start(t, s.address, append([]string{"doctor"}, tt.args...)...)
				report := p.rest()
				p.wantCode(map[string]int{"warning": 1, "error": 2}[tt.state])
				found := finding(report, tt.state, tt.check)
				for _, want := range tt.says {
					if want = strings.Replace(want, "PID", strconv.Itoa(s.pid), 1); !strings.Contains(found, want) {
						t.Errorf("%s says %q, want %q in it:\n%s", tt.check, found, want, report)
					}
				}
				for _, never := range []string{secret, s.name, "127.0.0.1", ofGo.FindString(report)} {
					if never != "" && strings.Contains(report+p.said(), never) {
						t.Errorf("it says %q:\n%s%s", never, report, p.said())
					}
				}
			})
		}
	})
}

// The doctor counts its own connections as free. It does not say that pgx is fit
// for a lease table by an address with which pgx prepares statements.
func TestDoctorOfTheAddress(t *testing.T) {
	t.Parallel()
	v := newServers(t)
	number := len(misconfigurations)
	for suffix, want := range map[string]string{"": "skipped", "&default_query_exec_mode=exec": "ok"} {
		s := newSite(t, v, number)
		number++ // the connections of the doctor before count until the server has ended them
		s.execute("ALTER ROLE ROLE CONNECTION LIMIT 2")
		s.execute("GRANT CREATE ON SCHEMA public TO ROLE")
		s.hold(s.address, "SELECT 1")
		p := start(t, s.address+suffix, "doctor", withLeaseTable)
		report := p.rest()
		p.wantCode(0)
		if finding(report, want, "driver") == "" || finding(report, "ok", "connections") == "" {
			t.Errorf("driver is not %s, or connections is not ok:\n%s", want, report)
		}
	}
}

// No error of the command line repeats a value, which may be an address or a key.
func TestUsageErrorsHoldNoValue(t *testing.T) {
	t.Parallel()
	const address = "postgres://u:hunter2@localhost/d"
	for _, args := range [][]string{{address}, {address, "doctor"}, {"ps", "--watch", address}, {"doctor", "--instances", address}, {"run", "-E", address, "a:b", "true"}, {"--" + address}, {"-hunter2"}, {"--help", address}, {"doctor", "--help", address}, {"completion", address}, {"completion", "--hunter2"}, {"run", "-whunter2", "a:b", "true"}, {"run", "-w", address, "a:b", "true"}} {
		p := start(t, "", args...)
		p.wantCode(exitUsage)
		if strings.Contains(p.said(), secret) || !strings.Contains(p.said(), "latchkey: ") {
			t.Errorf("%q: it says %q", args, p.said())
		}
	}
}

// finding returns the lines of a check in a report, if it has this state.
func finding(report, state, check string) string {
	line := regexp.MustCompile(`(?m)^` + state + ` +` + check + ` .*\n( .*\n)*`)
	return line.FindString(report)
}
