package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // any driver of PostgreSQL will do

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A database is where the instances keep their locks, marks and work.
type database struct {
	url string
	db  *sql.DB
}

// withDatabase calls f with the database that DATABASE_URL names, or a throwaway one, and what the
// demonstration needs in it.
func withDatabase(ctx context.Context, f func(*database) error) (err error) {
	d := &database{url: os.Getenv("DATABASE_URL")}
	if d.url == "" {
		dsn, drop, err := pgtest.Temporary(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = drop() }() // the server goes with this process
		d.url = dsn
	}
	if d.db, err = openPool(d.url); err != nil {
		return err
	}
	defer d.db.Close()
	if err := d.execute(ctx, sqllock.MarkSchema, "DROP TABLE IF EXISTS cron_example_runs", runsTable); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, d.execute(context.WithoutCancel(ctx), "DROP TABLE cron_example_runs"))
	}()
	return f(d)
}

// openPool is a pool on the database that databaseURL names. The driver's error would show it.
func openPool(databaseURL string) (*sql.DB, error) {
	db, err := sql.Open("pgx", databaseURL)
	if err == nil {
		_, err = pgx.ParseConfig(databaseURL)
	}
	if err != nil {
		return nil, errors.New("DATABASE_URL is not understood: it may be postgres://user:password@host:port/database")
	}
	return db, nil
}

func (d *database) execute(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := d.db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("the database of DATABASE_URL cannot be used: %w", withoutDriverText(err))
		}
	}
	return nil
}

// ask scans the one number that query yields.
func (d *database) ask(ctx context.Context, query string) (n int, err error) {
	err = d.db.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}
