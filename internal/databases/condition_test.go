package databases

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/httpmw/idempotency"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A stage is a database with all tables, in which a role of its own uses the
// kit. The tests of docs/databases/conditions.md put it under a condition.
type stage struct {
	driver string
	dsn    string  // of the role
	plain  string  // of a superuser, whom the condition does not concern
	admin  *sql.DB // on plain
	role   string
	base   string // the name of the database

	without string                            // a use that tryAll leaves out
	inMode  bool                              // dsn has a default_query_exec_mode
	shared  *sql.DB                           // what pool returns, if it is not nil
	wrap    func(driver.Driver) driver.Driver // around the driver of pool; may be nil
}

// newStage makes a stage on the server of plain, a fresh database.
func newStage(t *testing.T, plain string) stage {
	t.Helper()
	s := stage{plain: plain, role: ownName("actor"), admin: open(t, "pgx", plain+"&default_query_exec_mode=exec")}
	must(t, s.admin.QueryRow("SELECT current_database()").Scan(&s.base))
	execute(t, s.admin, "CREATE ROLE "+s.role+" LOGIN")
	t.Cleanup(func() {
		execute(t, s.admin, "DROP OWNED BY "+s.role)
		execute(t, s.admin, "DROP ROLE "+s.role)
	})
	create(t, s.admin, sqllock.FenceSchema(sqllock.PostgreSQL), watermark.Schema(sqllock.PostgreSQL), lockwatch.Schema(sqllock.PostgreSQL),
		idempotency.Schema(sqllock.PostgreSQL), sqllock.Schema(sqllock.PostgreSQL), []string{
			"CREATE TABLE effects (what text)",
			"GRANT ALL ON ALL TABLES IN SCHEMA public TO " + s.role,
			"GRANT CREATE ON SCHEMA public TO " + s.role,
		})
	s.dsn = s.as(t, plain)
	return s
}

// as returns dsn for the role of s.
func (s stage) as(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	must(t, err)
	u.User = url.User(s.role)
	return u.String()
}

// set makes statements of the condition: %r is the role and %d the database.
func (s stage) set(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		execute(t, s.admin, strings.NewReplacer("%r", s.role, "%d", s.base).Replace(statement))
	}
}

// pool opens a pool of the role, as a process of its own would.
func (s stage) pool(t *testing.T) *sql.DB {
	t.Helper()
	if s.shared != nil {
		return s.shared
	}
	db := open(t, s.driver, s.dsn)
	if s.wrap != nil {
		db = sql.OpenDB(dsnConnector{s.dsn, s.wrap(db.Driver())})
		t.Cleanup(func() { _ = db.Close() })
	}
	db.SetMaxOpenConns(5)
	return db
}

// on returns s with one pool for all.
func (s stage) on(db *sql.DB) stage {
	s.shared = db
	return s
}

// unprepared is pool for a driver that prepares nothing, unless the condition is
// how the driver sends its statements.
func (s stage) unprepared(t *testing.T) *sql.DB {
	t.Helper()
	if s.driver == "pgx" && !s.inMode {
		s.dsn = inExecMode(s.dsn)
	}
	return s.pool(t)
}

// advisoryLocks counts the advisory locks in the database of s.
func (s stage) advisoryLocks(t *testing.T) int {
	t.Helper()
	return number(t, s.admin, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// endAll ends all server processes of the role, and returns how many.
func (s stage) endAll(t *testing.T, where string) int {
	t.Helper()
	return number(t, s.admin, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '"+s.role+"' AND "+where)
}

// leavesNothing checks that no lock and no transaction of the role remains,
// once all that a test opened is closed.
func (s stage) leavesNothing(t *testing.T) {
	t.Helper()
	lockertest.Eventually(t, "no advisory lock remains", func() bool { return s.advisoryLocks(t) == 0 })
	lockertest.Eventually(t, "no transaction remains", func() bool {
		return number(t, s.admin, "SELECT count(*) FROM pg_stat_activity WHERE usename = '"+s.role+"' AND xact_start IS NOT NULL") == 0
	})
}

// saysNothingPrivate checks that err names no role, database, host or key.
func (s stage) saysNothingPrivate(t *testing.T, err error) {
	t.Helper()
	for _, private := range []string{s.role, s.base, "127.0.0.1", "user-1"} {
		if strings.Contains(err.Error(), private) {
			t.Errorf("the error holds %q: %v", private, err)
		}
	}
}

// An outcome says what a use meets under a condition: the sentence of its
// error. "" means that it works.
type outcome map[string]string

// tryAll runs all uses on s. Those in fails must fail, with that sentence. The
// others must work. If mayFail has sentences, they may fail with one of them:
// it depends on how quick the server is.
func (s stage) tryAll(t *testing.T, fails outcome, mayFail []string) {
	for _, u := range uses {
		if u.name == s.without {
			continue
		}
		t.Run(u.name, func(t *testing.T) {
			err := s.try(t, u.use)
			var own *ownError
			if err != nil && !errors.As(err, &own) {
				s.saysNothingPrivate(t, err)
			}
			sentence := fails[u.name]
			switch {
			case sentence != "":
				if err == nil || !strings.Contains(err.Error(), sentence) {
					t.Errorf("%v, want an error with %q", err, sentence)
				}
			case err == nil, mayFail != nil && own != nil:
			case !slices.ContainsFunc(mayFail, func(may string) bool { return strings.Contains(err.Error(), may) }):
				t.Errorf("%v, want none, or one with any of %q", err, mayFail)
			}
		})
	}
	s.leavesNothing(t)
}

// soon bounds what should take no time, on a server that other tests keep busy.
const soon = time.Minute
