package main

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"os/exec"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// errNoRedis says that redis-server was not found, and what to do.
var errNoRedis error = &pgtest.MissingError{Program: "redis-server", Advice: "run `make deps`"}

// servers are a running PostgreSQL and a running Redis, which end with this
// process.
type servers struct {
	postgres, postgresVersion string // the DSN of an empty database
	redis, redisVersion       string // host:port

	cluster *pgtest.Cluster
	daemon  *pgtest.Daemon // the Redis
}

// startServers starts both. The caller must close them.
//
// PostgreSQL has room for any contender's connections. It is at its defaults
// where that could matter to one, but for durability: nothing waits for a disk,
// which only lease rows would.
func startServers(ctx context.Context) (*servers, error) {
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
	s := &servers{cluster: cluster}
	if s.postgres, err = cluster.CreateDatabase(ctx); err == nil {
		s.postgresVersion, err = version(ctx, s.postgres)
	}
	if err == nil {
		err = s.startRedis(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return s, nil
}

func version(ctx context.Context, dsn string) (number string, err error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT split_part(current_setting('server_version'), ' ', 1)").Scan(&number)
	return number, err
}

// startRedis starts a redis-server that writes no file.
func (s *servers) startRedis(ctx context.Context) error {
	program := pgtest.Find("redis-server")
	if program == "" {
		return errNoRedis
	}
	output, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil {
		return err
	}
	for word := range strings.FieldsSeq(string(output)) { // Redis server v=7.0.15 sha=…
		if number, ok := strings.CutPrefix(word, "v="); ok {
			s.redisVersion = number
		}
	}
	s.daemon, err = pgtest.StartDaemon(pgtest.Launch{
		Args: func(_, _ string, port int) []string {
			return []string{program, "--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--save", "", "--appendonly", "no"}
		},
		Ready: func(_, log string, _ int) bool { return strings.Contains(log, "Ready to accept connections") },
	})
	if err == nil {
		s.redis = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.daemon.Port()))
	}
	return err
}

// close stops both and removes their files.
func (s *servers) close() error { return errors.Join(s.daemon.Close(), s.cluster.Close()) }
