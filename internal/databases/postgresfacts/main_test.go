// Package postgresfacts tests what the project's pages say of PostgreSQL
// itself:
//
//   - how its advisory locks wait, time out and end;
//   - which deadlocks it detects;
//   - what pg_locks shows to which role.
//
// docs/deadlocks.md names the tests. A failure means that this
// version of PostgreSQL behaves differently. The page, or the code that relies
// on it, has to change then.
package postgresfacts

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	dbtest.Main(m)
}

// A step is a statement of one of two sessions, and its result.
type step struct {
	session   int
	statement string
	want      string
}

func a(statement, want string) step { return step{0, statement, want} }
func b(statement, want string) step { return step{1, statement, want} }

// play takes steps in two sessions of a fresh database, with each driver.
func play(t *testing.T, steps ...step) {
	t.Helper()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		sessions := [2]*sql.Conn{dbtest.Conn(t, db), dbtest.Conn(t, db)}
		for _, s := range steps {
			expect(t, sessions[s.session], s.statement, s.want)
		}
	})
}

// expect checks the result of a statement.
func expect(t *testing.T, conn *sql.Conn, statement, want string) {
	t.Helper()
	if got := result(t, conn, statement); got != want {
		t.Fatalf("%s: %q, want %q", statement, got, want)
	}
}

// result runs a statement. It returns the text of the first value, or the
// SQLSTATE of the error.
func result(t *testing.T, conn *sql.Conn, statement string) string {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // so that the test fails instead of hanging
	defer cancel()
	var value sql.NullString
	err := conn.QueryRowContext(ctx, statement).Scan(&value)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return cmp.Or(dbtest.State(err), err.Error())
	}
	return value.String
}

// Conditions on pg_locks.
const (
	advisory = " FROM pg_locks WHERE locktype = 'advisory'"
	here     = advisory + " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
