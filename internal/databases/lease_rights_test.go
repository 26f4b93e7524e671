package databases

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// clerk creates a role that owns nothing, and opens a pool as that role.
func clerk(t *testing.T, driver, dsn string) (role string, owner, asClerk *sql.DB) {
	t.Helper()
	owner = open(t, "pgx", dsn)
	role = "clerk_" + strings.ToLower(strings.NewReplacer("/", "_", "(", "", ")", "", ",", "_").Replace(t.Name()))
	execute(t, owner, "CREATE ROLE "+role)
	t.Cleanup(func() {
		execute(t, owner, "DROP OWNED BY "+role)
		execute(t, owner, "DROP ROLE "+role)
	})
	if driver == "pgx" {
		dsn = inExecMode(dsn)
	}
	return role, owner, open(t, driver, dsn+"&role="+role)
}

// makeTables creates the tables as their owner, and lets role use them.
func makeTables(t *testing.T, owner *sql.DB, role string) {
	t.Helper()
	create(t, owner, sqllock.Schema(sqllock.PostgreSQL))
	execute(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON latchkey_sessions, latchkey_locks, latchkey_secret_checks, latchkey_tokens TO "+role)
}

// rejectedFor checks that Open rejects db with want, in an error that contains
// says.
func rejectedFor(t *testing.T, db *sql.DB, want error, says string) {
	t.Helper()
	s, err := sqllock.Open(t.Context(), db, sqllock.WithLeaseTable())
	if err == nil {
		_ = s.Close()
	}
	if !errors.Is(err, want) || !strings.Contains(err.Error(), says) {
		t.Errorf("Open: %v, want %v that mentions %q", err, want, says)
	}
}

// A role that may not create tables uses the tables that exist. If they do not
// exist, Open says what to do.
func TestLeaseTableWithoutRightToCreate(t *testing.T) {
	t.Parallel()
	role, owner, asClerk := clerk(t, "pgx", pgtest.Database(t))
	execute(t, owner, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	rejectedFor(t, asClerk, sqllock.ErrConfig, "Schema(PostgreSQL)")
	makeTables(t, owner, role)
	s := session(t, asClerk, sqllock.WithLeaseTable())
	if err := mustLock(t, s, sqllock.ID(1)).Unlock(); err != nil {
		t.Error(err)
	}
}

// A role may lack the right to call the functions that tokens come from. Open
// reports that, not a later TryLock.
func TestLeaseTableWithoutRightToTokens(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		for _, function := range []string{"pg_logical_emit_message", "pg_control_system"} {
			t.Run(driver+" "+function, func(t *testing.T) {
				t.Parallel()
				role, owner, asClerk := clerk(t, driver, pgtest.Database(t))
				makeTables(t, owner, role)
				execute(t, owner, revoke(function))
				rejectedFor(t, asClerk, sqllock.ErrConfig, function)
			})
		}
	}
}

// revoke returns a statement that revokes every function of this name from
// PUBLIC. The arguments of pg_logical_emit_message differ between versions of
// PostgreSQL.
func revoke(function string) string {
	return `DO $$
DECLARE f regprocedure;
BEGIN
	FOR f IN SELECT oid FROM pg_proc WHERE proname = '` + function + `' LOOP
		EXECUTE 'REVOKE EXECUTE ON FUNCTION ' || f || ' FROM PUBLIC';
	END LOOP;
END $$`
}

// Open rejects tables in two schemas: one instance might use the tables of one,
// and another the tables of the other.
func TestLeaseTableInTwoSchemas(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			owner := open(t, "pgx", dsn)
			create(t, owner, sqllock.Schema(sqllock.PostgreSQL))
			execute(t, owner, "CREATE SCHEMA other")
			execute(t, owner, "CREATE TABLE other.latchkey_sessions (LIKE public.latchkey_sessions INCLUDING ALL)")
			if driver == "pgx" {
				dsn = inExecMode(dsn)
			}
			rejectedFor(t, open(t, driver, dsn+"&search_path=other,public"), sqllock.ErrNotExclusive, "more than one schema")
		})
	}
}
