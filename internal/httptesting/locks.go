package httptesting

import (
	"context"
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Failing is a Locker that fails every request with Err.
type Failing struct{ Err error }

// TryLock returns Err.
func (l Failing) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.Err }

// Lock returns Err.
func (l Failing) Lock(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, l.Err }

// Terminate ends the server processes of the Sessions in db's database.
func Terminate(tb testing.TB, db *sql.DB) {
	tb.Helper()
	var n int
	err := db.QueryRow(`SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND application_name LIKE '%latchkey%'`).Scan(&n)
	if err != nil || n == 0 {
		tb.Fatalf("terminated %d sessions, %v", n, err)
	}
}
