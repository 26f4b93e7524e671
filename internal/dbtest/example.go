package dbtest

import (
	"context"
	"database/sql"
	"log"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ExampleDatabase makes a database for an Example, and returns a function that
// removes it.
func ExampleDatabase() (db *sql.DB, done func()) {
	dsn, drop, err := pgtest.Temporary(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("pgx", dsn)
	if err != nil {
		log.Fatal(err)
	}
	return db, func() {
		_ = db.Close()
		_ = drop()
	}
}

// ExampleSession opens a Session on a database of its own for an Example, and
// returns a function that closes both.
func ExampleSession() (locks *sqllock.Session, done func()) {
	db, drop := ExampleDatabase()
	locks, err := sqllock.Open(context.Background(), db)
	if err != nil {
		log.Fatal(err)
	}
	return locks, func() {
		_ = locks.Close()
		drop()
	}
}
