// Package servers starts what the benchmarks measure against, a PostgreSQL and
// a Redis that are thrown away, and meters their processor time.
package servers

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Servers is a running PostgreSQL and a running Redis.
type Servers struct {
	Postgres string // DSN of an empty database
	Version  string // of PostgreSQL
	Redis    *Redis

	cluster *pgtest.Cluster
	pid     int // the postmaster's; 0 where it cannot be found
}

// Start starts both. The caller must Close them; should it be killed, the
// PostgreSQL ends by itself, and on Linux the Redis, too.
//
// PostgreSQL has room for any contender's connections. It is at its defaults
// where that could matter to one, but for durability: nothing waits for a disk,
// which only lease rows would.
func Start(ctx context.Context) (*Servers, error) {
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
	s := &Servers{cluster: cluster}
	if s.Postgres, err = cluster.CreateDatabase(ctx); err == nil {
		err = s.look(ctx)
	}
	if err == nil {
		s.Redis, err = StartRedis(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return s, nil
}

// look finds out which PostgreSQL was started.
func (s *Servers) look(ctx context.Context) error {
	db, err := sql.Open("pgx", s.Postgres)
	if err != nil {
		return err
	}
	defer db.Close()
	var backend int
	err = db.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1), pg_backend_pid()").Scan(&s.Version, &backend)
	s.pid = parentOf(backend)
	return err
}

// Time is the processor time of both servers so far; 0 where that of one of them
// cannot be read.
func (s *Servers) Time() time.Duration {
	postgres, redis := familyTime(s.pid), processTime(s.Redis.process.Pid)
	if postgres == 0 || redis == 0 {
		return 0
	}
	return postgres + redis
}

// Close stops both and removes their files.
func (s *Servers) Close() error { return errors.Join(s.Redis.Close(), s.cluster.Close()) }
