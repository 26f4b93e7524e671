package demo

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

// A Place is the database of the demonstration.
type Place struct {
	URL     string
	cluster *pgtest.Cluster // nil if DATABASE_URL names the database, which then is not stopped
}

// OpenPlace opens the database that DATABASE_URL names, or starts a throwaway
// server.
func OpenPlace() (*Place, error) {
	if url := os.Getenv("DATABASE_URL"); url != "" {
		return &Place{URL: url}, nil
	}
	// Commits survive a crash of the server, as with PostgreSQL's default settings.
	c, err := pgtest.Start(pgtest.WithSettings(map[string]string{"synchronous_commit": "on", "autovacuum": "on"}))
	if err != nil {
		return nil, err
	}
	return &Place{URL: c.DSN(""), cluster: c}, nil
}

// Close stops the throwaway server.
func (p *Place) Close() error {
	if p.cluster == nil {
		return nil
	}
	return p.cluster.Close()
}

// outage kills the server, and starts it again after d.
func (p *Place) outage(ctx context.Context, d time.Duration) error {
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

// inSchema returns url with a search_path.
func inSchema(url, schema string) string {
	switch {
	case !strings.Contains(url, "://"):
		return url + " search_path=" + schema
	case strings.Contains(url, "?"):
		return url + "&search_path=" + schema
	}
	return url + "?search_path=" + schema
}

// Connect opens a pool whose connections have a search_path. Errors do not show the
// url, which may contain a password.
func Connect(url, schema string, most int) (*sqlx.DB, error) {
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

// WithSchema makes a schema with the tables of the queue and of the account,
// calls do, and drops the schema.
func (p *Place) WithSchema(ctx context.Context, do func(db *sqlx.DB, schema string) error) error {
	schema := fmt.Sprintf("latchkey_jobqueue_%08x", rand.Uint32()) //nolint:gosec // a name
	db, err := Connect(p.URL, schema, 4)
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
			return fmt.Errorf("the database rejected a statement (SQLSTATE %s)", server.SQLState())
		}
		return queue.ErrUnavailable
	}
	return nil
}
