package dbtest

import (
	"context"
	"database/sql"
	"testing"
)

// Transaction begins a transaction. The end of the test rolls it back.
func Transaction(tb testing.TB, db *sql.DB) *sql.Tx {
	tb.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// Create runs the statements of a schema in one transaction, as a migration
// does: a Watch that is running never sees a part of its tables.
func Create(tb testing.TB, db *sql.DB, schema []string) {
	tb.Helper()
	tx := Transaction(tb, db)
	for _, statement := range schema {
		if _, err := tx.ExecContext(context.Background(), statement); err != nil {
			tb.Fatalf("%.40s…: %v", statement, err)
		}
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
}

// Execute runs a statement on a pool, on a connection or in a transaction.
func Execute(tb testing.TB, on interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	tb.Helper()
	if _, err := on.ExecContext(context.Background(), query, args...); err != nil {
		tb.Fatalf("%.60s…: %v", query, err)
	}
}

// Number returns the number that a query returns in one row.
func Number(tb testing.TB, db *sql.DB, query string, args ...any) int {
	tb.Helper()
	var n int
	if err := db.QueryRowContext(context.Background(), query, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}

// AdvisoryLocks counts the advisory locks that are held in db's database.
func AdvisoryLocks(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return Number(tb, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// WaitForLocks counts the connections to db's database that wait for a lock.
func WaitForLocks(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return Number(tb, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'`)
}
