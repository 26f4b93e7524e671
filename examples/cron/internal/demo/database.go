package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // any driver of PostgreSQL will do

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A database is where the instances keep their locks, marks and runs.
type database struct {
	url       string
	db        *sql.DB
	throwaway bool   // it is removed with this process
	demo      string // the demonstration's name; there may be others on this database
}

// namespace returns the namespace of a demonstration's jobs.
func namespace(demo string) sqllock.Namespace { return sqllock.Namespace("cron-example-" + demo) }

// runsName returns the name of its table of runs.
func runsName(demo string) string { return "cron_example_runs_" + demo }

// withDatabase calls f with the database that DATABASE_URL names, or a throwaway
// one, when the tables are there.
func withDatabase(ctx context.Context, f func(*database) error) (err error) {
	d := &database{url: os.Getenv("DATABASE_URL"), demo: strings.ToLower(rand.Text()[:10])}
	if d.url == "" {
		dsn, drop, err := pgtest.Temporary(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = drop() }() // the server goes with this process
		d.url, d.throwaway = dsn, true
	}
	if d.db, err = openPool(d.url); err != nil {
		return err
	}
	defer d.db.Close()
	if err := d.execute(ctx, append(watermark.Schema(sqllock.PostgreSQL), fmt.Sprintf(runsTable, runsName(d.demo)))...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.clear(context.WithoutCancel(ctx))) }()
	return f(d)
}

// clear removes what the demonstration alone uses. Others may use the table of
// marks.
func (d *database) clear(ctx context.Context) error {
	var ids []string
	for _, s := range schedules {
		ids = append(ids, strconv.FormatInt(namespace(d.demo).Key(s.job).Int64(), 10))
	}
	return d.execute(ctx, "DROP TABLE "+runsName(d.demo),
		"DELETE FROM latchkey_watermarks WHERE key_space = 0 AND key_id IN ("+strings.Join(ids, ", ")+")")
}

// openPool opens the database that databaseURL names. The driver's error would
// show the URL.
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

// ask returns the number that query yields. The table of runs is %[1]s in query.
func (d *database) ask(ctx context.Context, query string) (n int, err error) {
	err = d.db.QueryRowContext(ctx, fmt.Sprintf(query, runsName(d.demo))).Scan(&n)
	return n, err
}
