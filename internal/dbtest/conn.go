package dbtest

import (
	"context"
	"database/sql"
	"testing"
)

// SessionPID is a query for the process id of the server process that serves
// the only Session of a database.
const SessionPID = `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%latchkey'`

// Conn takes a connection out of db's pool. The end of the test closes it.
func Conn(tb testing.TB, db *sql.DB) *sql.Conn {
	tb.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ExecuteOn is [Execute] on a connection.
func ExecuteOn(tb testing.TB, conn *sql.Conn, query string) {
	tb.Helper()
	Execute(tb, conn, query)
}

// BackendPID returns the process id of the server process that serves conn.
func BackendPID(tb testing.TB, conn *sql.Conn) int {
	tb.Helper()
	var pid int
	if err := conn.QueryRowContext(context.Background(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
		tb.Fatal(err)
	}
	return pid
}
