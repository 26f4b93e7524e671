package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

type postgres struct {
	cluster  *pgtest.Cluster
	dsn      string
	version  string
	settings map[string]string
	pid      int // the postmaster's; 0 where it cannot be found
}

// startPostgres starts a PostgreSQL with room for any contender's connections.
// It is at its defaults where that could matter to one, but for durability:
// nothing waits for a disk, which only lease rows would.
func startPostgres(ctx context.Context) (*postgres, error) {
	cluster, err := pgtest.Start(pgtest.WithSettings(map[string]string{
		"max_connections": "300",
		"shared_buffers":  "128MB",
		"autovacuum":      "on", // lease rows leave dead ones behind
		"jit":             "on",
		"wal_keep_size":   "0",
	}))
	if err != nil {
		return nil, err
	}
	p := &postgres{cluster: cluster}
	if p.dsn, err = cluster.CreateDatabase(ctx); err == nil {
		err = p.look(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return p, nil
}

func (p *postgres) close() error { return p.cluster.Close() }

// look finds out what was started.
func (p *postgres) look(ctx context.Context) error {
	db, err := sql.Open("pgx", p.dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	var backend int
	err = db.QueryRowContext(ctx, "SELECT current_setting('server_version'), pg_backend_pid()").Scan(&p.version, &backend)
	if err != nil {
		return err
	}
	p.pid = parentOf(backend)
	p.settings, err = changedSettings(ctx, db)
	return err
}

// changedSettings leaves out where the server is and how it logs.
func changedSettings(ctx context.Context, db *sql.DB) (map[string]string, error) {
	rows, err := db.QueryContext(ctx, `
		SELECT name, current_setting(name) FROM pg_settings
		WHERE source = 'configuration file' AND setting IS DISTINCT FROM boot_val
		AND name NOT IN ('port', 'listen_addresses', 'unix_socket_directories', 'log_line_prefix', 'TimeZone')
		ORDER BY name`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		settings[fmt.Sprintf("PostgreSQL %s", name)] = value
	}
	return settings, rows.Err()
}
