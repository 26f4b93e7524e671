package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// CreateDatabase creates a database with a random name and returns its DSN,
// over TCP. It is removed with the cluster.
func (c *Cluster) CreateDatabase(ctx context.Context) (dsn string, err error) {
	name, create := newDatabase()
	if err := execute(ctx, c.DSN(""), create); err != nil {
		return "", err
	}
	return c.DSN(name), nil
}

// newDatabase returns a random name, and the statement that creates a database
// of this name.
func newDatabase() (name, create string) {
	name = "latchkey_" + strings.ToLower(rand.Text())
	// The template is template0, to which no client connects: a connection to
	// the template makes CREATE DATABASE fail.
	return name, "CREATE DATABASE " + name + " TEMPLATE template0" + byFile
}

// byFile has the server copy files, for a sixth of the processor time of copying
// pages. That is not the default from PostgreSQL 15 on. PostgreSQL 14 has no other
// way, and does not know the word.
const byFile = " STRATEGY file_copy"

// execute runs one statement on a connection of its own. It uses pgx directly,
// because a *sql.DB keeps a goroutine for some time after its Close.
func execute(ctx context.Context, dsn, query string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer closeConn(ctx, conn)
	return executeOn(ctx, conn, query)
}

func executeOn(ctx context.Context, conn *pgx.Conn, query string) error {
	if strings.HasPrefix(conn.PgConn().ParameterStatus("server_version"), "14") {
		query = strings.TrimSuffix(query, byFile)
	}
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
