package demo

import (
	"database/sql"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	code := pgtest.Main(m)
	if err := removeProgram(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := openPool(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func execute(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%.40s…: %v", query, err)
	}
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	if err := db.QueryRow(query).Scan(&n); err != nil {
		t.Fatalf("%.40s…: %v", query, err)
	}
	return n
}

// locks counts the advisory locks held in db's database.
func locks(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}
