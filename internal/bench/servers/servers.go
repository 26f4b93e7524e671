// Package servers starts what the benchmarks measure against, a PostgreSQL and
// a Redis that are thrown away, and meters their processor time.
package servers

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
)

// Servers is a running PostgreSQL and a running Redis.
type Servers struct {
	postgres *postgres
	redis    *Redis
}

// Start starts both. The caller must Close them; should it be killed, the
// PostgreSQL ends by itself, and on Linux the Redis, too.
func Start(ctx context.Context) (*Servers, error) {
	p, err := startPostgres(ctx)
	if err != nil {
		return nil, err
	}
	r, err := StartRedis(ctx)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &Servers{postgres: p, redis: r}, nil
}

// Postgres is the DSN of an empty database.
func (s *Servers) Postgres() string { return s.postgres.dsn }

// Redis is the host:port of the Redis.
func (s *Servers) Redis() string { return s.redis.Addr }

// Versions are the servers', by name.
func (s *Servers) Versions() map[string]string {
	return map[string]string{"PostgreSQL": s.postgres.version, "Redis": s.redis.Version}
}

// Settings are those of PostgreSQL that are not its defaults and could matter,
// and Redis's.
func (s *Servers) Settings() map[string]string {
	all := maps.Clone(s.postgres.settings)
	maps.Copy(all, redisSettings)
	return all
}

// Usage is the processor time of this process and of both servers so far.
func (s *Servers) Usage() load.Usage {
	return load.Usage{Client: ownTime(), Server: s.serverTime()}
}

// serverTime is 0 where the time of one of them cannot be read.
func (s *Servers) serverTime() time.Duration {
	postgres, redis := familyTime(s.postgres.pid), processTime(s.redis.process.Pid)
	if postgres == 0 || redis == 0 {
		return 0
	}
	return postgres + redis
}

// Close stops both and removes their files.
func (s *Servers) Close() error {
	return errors.Join(s.redis.Close(), s.postgres.close())
}
