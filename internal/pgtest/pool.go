package pgtest

import (
	"database/sql"
	"testing"
)

// EachDriver runs test with each driver, at the same time, and with a database
// of its own.
func EachDriver(t *testing.T, test func(t *testing.T, driver, dsn string)) {
	t.Helper()
	for _, driver := range Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			test(t, driver, Database(t))
		})
	}
}

// Open opens a pool on dsn. The pool is closed when the test ends.
func Open(tb testing.TB, driver, dsn string) *sql.DB {
	tb.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// Execute executes one statement. An error ends the test.
func Execute(tb testing.TB, db *sql.DB, statement string, args ...any) {
	tb.Helper()
	if _, err := db.Exec(statement, args...); err != nil {
		tb.Fatalf("%.40s…: %v", statement, err)
	}
}

// Create executes the statements of a schema in one transaction.
func Create(tb testing.TB, db *sql.DB, schema []string) {
	tb.Helper()
	tx, err := db.Begin()
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	for _, statement := range schema {
		if _, err := tx.Exec(statement); err != nil {
			tb.Fatalf("%.40s…: %v", statement, err)
		}
	}
	if err := tx.Commit(); err != nil {
		tb.Fatal(err)
	}
}

// Number returns the one number that query selects.
func Number(tb testing.TB, db *sql.DB, query string, args ...any) int {
	tb.Helper()
	var n int
	if err := db.QueryRow(query, args...).Scan(&n); err != nil {
		tb.Fatal(err)
	}
	return n
}
