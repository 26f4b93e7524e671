package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// CreateDatabase creates a database with a random name and returns its DSN,
// over TCP. It is removed with the cluster.
func (c *Cluster) CreateDatabase(ctx context.Context) (dsn string, err error) {
	name, err := createDatabase(ctx, c.DSN(""))
	if err != nil {
		return "", err
	}
	return c.DSN(name), nil
}

// createDatabase creates a database on the server at dsn and returns its name.
func createDatabase(ctx context.Context, dsn string) (name string, err error) {
	name = "latchkey_" + strings.ToLower(rand.Text())
	// The template is template0, to which no client connects: a connection to
	// the template makes CREATE DATABASE fail.
	if err := execute(ctx, dsn, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		return "", err
	}
	return name, nil
}

// dropDatabase drops a database and ends the connections to it.
func dropDatabase(ctx context.Context, dsn, name string) error {
	return poll(20*time.Second, "database "+name+" to be free", func() (bool, error) {
		err := execute(ctx, dsn, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && pg.Code == "55006" {
			return false, nil // in use: one of the ended sessions takes its time
		}
		return err == nil, err
	})
}

// execute runs one statement on a connection of its own. It uses pgx directly,
// because a *sql.DB keeps a goroutine for some time after its Close.
func execute(ctx context.Context, dsn, query string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	if _, err := conn.Exec(ctx, query); err != nil {
		return fmt.Errorf("pgtest: %s: %w", query, err)
	}
	return nil
}

// queryValue runs a query that returns one value of type T.
func queryValue[T any](ctx context.Context, dsn, query string) (T, error) {
	var value T
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return value, err
	}
	defer closeConn(ctx, conn)
	return value, conn.QueryRow(ctx, query, pgx.QueryExecModeSimpleProtocol).Scan(&value)
}

// closeConn closes conn in an orderly way, but waits for a bounded time: a
// server that was frozen meanwhile never responds.
func closeConn(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the result has arrived already
}
