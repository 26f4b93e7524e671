package lockdoctor_test

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// reasonOf returns the reason and the fix of a check.
func reasonOf(t *testing.T, r *lockdoctor.Report, check string) string {
	t.Helper()
	for _, c := range r.Checks {
		if c.Name == check {
			return c.Reason + ": " + c.Fix
		}
	}
	t.Fatalf("no check %q in %v", check, r)
	return ""
}

// A frozen server is no fault of a pool that may open more connections.
func TestFrozenServerIsNoFullPool(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	if err := cluster.Freeze(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Thaw(); err != nil {
			t.Error(err)
		}
	}()
	text := reasonOf(t, examine(t, dbtest.Open(t, "pgx", cluster.DSN(""))), "connection")
	if strings.Contains(text, "pool") || !strings.Contains(text, "the server responds") {
		t.Error(text)
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
	s := dbtest.Session(t, "pgx", dsn, sqllock.WithRegistry("ops"))
	if text := reasonOf(t, examine(t, db, lockdoctor.WithSession(s)), "tables"); !strings.Contains(text, "WithSchema") {
		t.Error(text)
	}
	if text := reasonOf(t, examine(t, db, lockdoctor.WithSession(s), lockdoctor.WithSchema("ops")), "tables"); !strings.HasPrefix(text, "2 tables") {
		t.Error(text)
	}
}

// One connection is in use, not "are".
func TestOneConnectionInUse(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, "pgx", pgtest.Database(t))
	dbtest.Conn(t, db)
	if text := reasonOf(t, examine(t, db), "pool"); !strings.Contains(text, " 1 is in use") {
		t.Error(text)
	}
}
