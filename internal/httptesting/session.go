package httptesting

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Session opens a Session on db, whose log is discarded.
func Session(tb testing.TB, db *sql.DB) *sqllock.Session {
	tb.Helper()
	s, err := sqllock.Open(tb.Context(), db, sqllock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

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
