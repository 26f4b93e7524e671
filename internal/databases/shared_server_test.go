package databases

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A sharedServer is a PostgreSQL server that tests share as tenants. It demands
// passwords of them.
type sharedServer struct {
	cluster *pgtest.Cluster
	admin   *sql.DB
	hba     string // the path of pg_hba.conf

	mu       sync.Mutex        // protects what follows
	rejected map[string]string // by role: the kind of its line in pg_hba.conf
}

func newSharedServer(t *testing.T, opts ...pgtest.Option) *sharedServer {
	t.Helper()
	return newSharedServerOn(t, pgtest.New(t, opts...))
}

func newSharedServerOn(t *testing.T, cluster *pgtest.Cluster) *sharedServer {
	t.Helper()
	s := &sharedServer{cluster: cluster, rejected: map[string]string{}}
	s.admin = open(t, "pgx", s.cluster.DSN(""))
	must(t, s.admin.QueryRow("SHOW hba_file").Scan(&s.hba))
	s.reject(t, "", "")
	return s
}

// reject makes pg_hba.conf reject role in lines of kind "host" or "hostnossl",
// or no more if kind is "".
func (s *sharedServer) reject(t *testing.T, role, kind string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rejected[role] = kind
	var file strings.Builder
	for role, kind := range s.rejected {
		if kind != "" {
			fmt.Fprintf(&file, "%s all %s all reject\n", kind, role)
		}
	}
	file.WriteString("local all all trust\nhost all postgres all trust\nhost all all all scram-sha-256\n")
	must(t, os.WriteFile(filepath.Clean(s.hba), []byte(file.String()), 0o600))
	execute(t, s.admin, "SELECT pg_reload_conf()")
}

// A tenant is a role with a database on a shared server, and what Sessions of
// the role log.
//
// Invariant: the names and the password contain "leaky", which no error text and
// no log line may contain.
type tenant struct {
	t              *testing.T
	server         *sharedServer
	driver         string
	role, database string
	password       atomic.Value // string: what the next login uses
	unlockTables   func()       // undoes lockTables
	log            httptesting.Logbook
}

// tenant creates a role and its database.
func (s *sharedServer) tenant(t *testing.T, driver string) *tenant {
	t.Helper()
	name := ownName("leaky")
	p := &tenant{t: t, server: s, driver: driver, role: name, database: name + "_db"}
	p.password.Store("leaky_first")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log:\n%s", p.log.String())
		}
	})
	execute(t, s.admin, p.text("CREATE ROLE %[2]s LOGIN PASSWORD 'leaky_first'"))
	p.createDatabase()
	return p
}

// text fills in the names: %[1]s is the database, and %[2]s the role.
func (p *tenant) text(statement string) string {
	return strings.NewReplacer("%[1]s", p.database, "%[2]s", p.role).Replace(statement)
}

// exec carries out statements as an administrator.
func (p *tenant) exec(statements string) {
	p.t.Helper()
	execute(p.t, p.server.admin, p.text(statements))
}

// inDatabase carries out statements as an administrator in the tenant's
// database.
func (p *tenant) inDatabase(statements string) {
	p.t.Helper()
	db, err := sql.Open("pgx", p.server.cluster.DSN(p.database))
	must(p.t, err)
	defer db.Close()
	execute(p.t, db, p.text(statements))
}

func (p *tenant) alterRole(how string) { p.t.Helper(); p.exec("ALTER ROLE %[2]s " + how) }

func (p *tenant) createDatabase() {
	p.t.Helper()
	p.exec("CREATE DATABASE %[1]s TEMPLATE template0")
	p.inDatabase("CREATE SCHEMA kit; SET search_path = kit; " + strings.Join(slices.Concat(
		lockwatch.Schema(sqllock.PostgreSQL), sqllock.FenceSchema(sqllock.PostgreSQL), sqllock.Schema(sqllock.PostgreSQL),
		watermark.Schema(sqllock.PostgreSQL), idempotency.Schema(sqllock.PostgreSQL), []string{"CREATE TABLE effects (what text)"}), ";\n"))
	p.grant()
}

func (p *tenant) grant() {
	p.t.Helper()
	p.inDatabase("GRANT USAGE ON SCHEMA kit TO %[2]s; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA kit TO %[2]s;" +
		" ALTER DATABASE %[1]s SET search_path = kit")
}

func (p *tenant) dropRole() {
	p.t.Helper()
	p.inDatabase("DROP OWNED BY %[2]s")
	p.exec("DROP ROLE %[2]s")
}

func (p *tenant) createRole() {
	p.t.Helper()
	p.exec("CREATE ROLE %[2]s LOGIN PASSWORD 'leaky_first'")
	p.grant()
}

// rename renames a database when nobody is connected to it.
func (p *tenant) rename(from, to string) {
	p.t.Helper()
	p.exec("ALTER DATABASE " + from + " ALLOW_CONNECTIONS false")
	p.endConnections()
	lockertest.Eventually(p.t, "the database can be renamed", func() bool {
		p.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '" + from + "'")
		_, err := p.server.admin.Exec("ALTER DATABASE " + from + " RENAME TO " + to)
		return err == nil
	})
	p.exec("ALTER DATABASE " + to + " ALLOW_CONNECTIONS true")
}

func (p *tenant) rejectBy(kind string) { p.t.Helper(); p.server.reject(p.t, p.role, kind) }

// lockTables locks tables as VACUUM FULL and ALTER TABLE do, until unlock.
func (p *tenant) lockTables(tables string) {
	p.t.Helper()
	db := open(p.t, "pgx", p.server.cluster.DSN(p.database))
	tx := mustBegin(p.t, db)
	execute(p.t, tx, "LOCK TABLE "+tables+" IN ACCESS EXCLUSIVE MODE")
	p.unlockTables = func() { must(p.t, errors.Join(tx.Rollback(), db.Close())) }
}

// endConnections ends the connections of the tenant. Those that hold keys
// exclusively come last: a waiter that is still connected would get the key, and
// lose it.
func (p *tenant) endConnections() {
	p.t.Helper()
	admin := p.server.admin
	of := ` FROM pg_stat_activity WHERE datname = '` + p.database + `' AND usename IS DISTINCT FROM 'postgres'` // a dropped role has no name
	holders := pids(p.t, admin, `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted
		AND pid IN (SELECT pid`+of+`)`)
	others := pids(p.t, admin, `SELECT pid`+of+` AND pid <> ALL ($1)`, holders)
	for _, last := range [][]int64{others, holders} {
		execute(p.t, admin, `SELECT pg_terminate_backend(pid)`+of+` AND pid = ANY ($1)`, last)
		lockertest.Eventually(p.t, "connections have ended", func() bool {
			return len(pids(p.t, admin, `SELECT pid`+of+` AND pid = ANY ($1)`, last)) == 0
		})
	}
}

func (p *tenant) unlock() { p.t.Helper(); p.unlockTables() }

// pids returns the process numbers that query selects.
func pids(t *testing.T, db *sql.DB, query string, args ...any) []int64 {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, args...)
	must(t, err)
	defer rows.Close()
	all := []int64{}
	for rows.Next() {
		var pid int64
		must(t, rows.Scan(&pid))
		all = append(all, pid)
	}
	must(t, rows.Err())
	return all
}
