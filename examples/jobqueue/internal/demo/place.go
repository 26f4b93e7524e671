package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/queue"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A place is the database in which all happens.
type place struct {
	url     string
	cluster *pgtest.Cluster // nil if DATABASE_URL names the database: it is not ours to stop
}

func openPlace() (*place, error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return &place{url: url}, nil
	}
	// What was committed is to survive its crash, as with PostgreSQL's own settings.
	c, err := pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on", "autovacuum": "on"}))
	if err != nil {
		return nil, err
	}
	return &place{url: c.DSN(""), cluster: c}, nil
}

func (p *place) close() error {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Close()
}

// outage has the server die, and come back after d.
func (p *place) outage(ctx context.Context, d time.Duration) error {
	if err := p.cluster.Kill(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return errors.Join(ctx.Err(), p.cluster.StartAgain())
}

// connect opens a pool whose connections have the schema as their search_path. Errors do not
// show the url, which may hold a password.
func connect(url, schema string, most int) (*sqlx.DB, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, errors.New("DATABASE_URL is not understood: it may be postgres://user:password@host:port/database")
	}
	if schema != "" {
		config.RuntimeParams["search_path"] = schema
	}
	db := sqlx.NewDb(stdlib.OpenDB(*config), "pgx")
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

// withSchema makes a schema with the queue's tables and those of the account, calls do, and drops
// it.
func (p *place) withSchema(ctx context.Context, do func(db *sqlx.DB, schema string) error) error {
	schema := fmt.Sprintf("latchkey_jobqueue_%08x", rand.Uint32()) //nolint:gosec // a name
	db, err := connect(p.url, schema, 4)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := execute(ctx, db.DB, "CREATE SCHEMA "+schema); err != nil {
		return err
	}
	err = execute(ctx, db.DB, strings.Join(append(queue.Schema(), accountSchema), ";"))
	if err == nil {
		err = do(db, schema)
	}
	return errors.Join(err, execute(context.WithoutCancel(ctx), db.DB, "DROP SCHEMA "+schema+" CASCADE"))
}

// execute runs statements without arguments.
func execute(ctx context.Context, db *sql.DB, statements string) error {
	if _, err := db.ExecContext(ctx, statements); err != nil {
		var server interface{ SQLState() string }
		if errors.As(err, &server) {
			return fmt.Errorf("the database refused a statement (SQLSTATE %s)", server.SQLState())
		}
		return queue.ErrUnavailable
	}
	return nil
}
