package waiters

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A waiter is a way to wait for a lock.
type waiter struct {
	wait  func(ctx context.Context, key int64) (give func() error, err error)
	close func()
}

func open(ctx context.Context, config Config) (waiter, error) {
	db, err := sql.Open("pgx", config.Postgres)
	if err != nil {
		return waiter{}, err
	}
	switch config.How {
	case Session:
		return openSession(ctx, db)
	case Unwatched:
		return openSession(ctx, db, sqllock.WithSocket(func(any) net.Conn { return nil }))
	case AdvisoryLock:
		return openPool(ctx, db, config.Connections)
	}
	return waiter{}, fmt.Errorf("no way to wait is called %q", config.How)
}

func openSession(ctx context.Context, db *sql.DB, opts ...sqllock.Option) (waiter, error) {
	db.SetMaxOpenConns(5)
	s, err := sqllock.Open(ctx, db, opts...)
	if err != nil {
		return waiter{}, errors.Join(err, db.Close())
	}
	return waiter{
		wait: func(ctx context.Context, key int64) (func() error, error) {
			lock, err := s.Lock(ctx, sqllock.ID(key))
			if err != nil {
				return nil, err
			}
			return lock.Unlock, nil
		},
		close: func() { _, _ = s.Close(), db.Close() },
	}, nil
}

// openPool opens all connections at once, so that none is made while it is
// measured.
func openPool(ctx context.Context, db *sql.DB, connections int) (waiter, error) {
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	conns := make([]*sql.Conn, connections)
	for i := range conns {
		conn, err := db.Conn(ctx)
		if err != nil {
			return waiter{}, errors.Join(err, db.Close())
		}
		conns[i] = conn
	}
	for _, conn := range conns {
		if err := conn.Close(); err != nil {
			return waiter{}, errors.Join(err, db.Close())
		}
	}
	return waiter{
		wait:  func(ctx context.Context, key int64) (func() error, error) { return waitOnConn(ctx, db, key) },
		close: func() { _ = db.Close() },
	}, nil
}

func waitOnConn(ctx context.Context, db *sql.DB, key int64) (give func() error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", key); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return func() error {
		_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", key)
		return errors.Join(err, conn.Close())
	}, nil
}
