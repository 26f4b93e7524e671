package locks

import (
	"context"
	"database/sql"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tryLock = "SELECT pg_try_advisory_lock($1)"
	unlock  = "SELECT pg_advisory_unlock($1)"
)

// errNotHeld is Release's answer if the database says that nothing was held.
var errNotHeld = errors.New("locks: released what was not held")

// perConnection holds each lock on a connection of its own, of a pool of 90 that
// closes none for idleness. lib/pq is at its defaults, as it is mostly used: each
// statement with an argument costs it two round trips.
func perConnection() []Contender {
	open := func(driver string) func(context.Context, Env, int) (Locks, error) {
		return func(ctx context.Context, env Env, callers int) (Locks, error) {
			db, err := openPool(ctx, env, driver, callers)
			if err != nil {
				return nil, err
			}
			return &sessionLocks{db: db}, nil
		}
	}
	return []Contender{
		{Name: PerConnectionPgx, Family: PerConnection, Driver: Pgx, Open: open(Pgx)},
		{Name: PerConnectionPQ, Family: PerConnection, Driver: PQ, Open: open(PQ)},
		{Name: "connection per lock, pgxpool", Family: PerConnection, Driver: Pgx, Open: openPgxpool},
	}
}

// openPool opens a pool whose connections are all there: a Session is connected
// before it is measured, so the others are too.
func openPool(ctx context.Context, env Env, driver string, callers int) (*sql.DB, error) {
	db, err := sql.Open(sqlName(driver), env.Postgres)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(PoolSize)
	db.SetMaxIdleConns(PoolSize)
	err = openAll(min(callers, PoolSize), func() (func(), error) {
		conn, err := db.Conn(ctx)
		return func() { _ = conn.Close() }, err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// openAll opens n connections at once, and gives them back when all are open.
func openAll(n int, open func() (giveBack func(), err error)) error {
	var opening sync.WaitGroup
	errs, backs := make([]error, n), make([]func(), n)
	for i := range n {
		opening.Go(func() { backs[i], errs[i] = open() })
	}
	opening.Wait()
	for i, back := range backs {
		if errs[i] == nil {
			back()
		}
	}
	return errors.Join(errs...)
}

// sessionLocks holds each lock on a connection of its own.
type sessionLocks struct{ db *sql.DB }

func (s *sessionLocks) Close() error { return s.db.Close() }

func (s *sessionLocks) Acquire(ctx context.Context, name string) (Held, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	key, ok := advisoryKey(name), false
	if err := conn.QueryRowContext(ctx, tryLock, key).Scan(&ok); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if !ok {
		return nil, errors.Join(ErrBusy, conn.Close())
	}
	return &sessionLock{conn: conn, key: key}, nil
}

type sessionLock struct {
	conn *sql.Conn
	key  int64
}

func (l *sessionLock) Release(ctx context.Context) error {
	ok := false
	if err := l.conn.QueryRowContext(ctx, unlock, l.key).Scan(&ok); err != nil {
		return errors.Join(err, l.conn.Close())
	}
	if !ok {
		return errors.Join(errNotHeld, l.conn.Close())
	}
	return l.conn.Close()
}

// pgxpoolLocks is sessionLocks without database/sql.
type pgxpoolLocks struct{ pool *pgxpool.Pool }

func openPgxpool(ctx context.Context, env Env, callers int) (Locks, error) {
	config, err := pgxpool.ParseConfig(env.Postgres)
	if err != nil {
		return nil, err
	}
	config.MaxConns = PoolSize
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	err = openAll(min(callers, PoolSize), func() (func(), error) {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		return conn.Release, nil
	})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &pgxpoolLocks{pool: pool}, nil
}

func (p *pgxpoolLocks) Close() error {
	p.pool.Close()
	return nil
}

func (p *pgxpoolLocks) Acquire(ctx context.Context, name string) (Held, error) {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	key, ok := advisoryKey(name), false
	if err := conn.QueryRow(ctx, tryLock, key).Scan(&ok); err != nil {
		conn.Release()
		return nil, err
	}
	if !ok {
		conn.Release()
		return nil, ErrBusy
	}
	return &pgxpoolLock{conn: conn, key: key}, nil
}

type pgxpoolLock struct {
	conn *pgxpool.Conn
	key  int64
}

func (l *pgxpoolLock) Release(ctx context.Context) error {
	defer l.conn.Release()
	ok := false
	if err := l.conn.QueryRow(ctx, unlock, l.key).Scan(&ok); err != nil {
		return err
	}
	if !ok {
		return errNotHeld
	}
	return nil
}
