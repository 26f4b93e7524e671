package main

import (
	"database/sql"
	"errors"
	"os"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// openPool opens a pool of up to n connections to the PostgreSQL that url names.
func openPool(url string, n int) (*sql.DB, error) {
	db, err := sql.Open("pgx", url)
	if err != nil || url == "" {
		return nil, errors.New("DATABASE_URL is not a URL such as postgres://user@host/database")
	}
	db.SetMaxOpenConns(n)
	db.SetMaxIdleConns(n)
	return db, nil
}

// withDatabase calls do with the database that DATABASE_URL names, or with a throwaway
// one.
func withDatabase(do func(url string) error) error {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return do(url)
	}
	// A commit is on disk before it is answered, as it is by default elsewhere.
	cluster, err := pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	if err != nil {
		return err
	}
	return errors.Join(do(cluster.DSN("")), cluster.Close())
}
