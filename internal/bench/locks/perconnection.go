package locks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	tryLock = "SELECT pg_try_advisory_lock($1)"
	unlock  = "SELECT pg_advisory_unlock($1)"
)

// errNotHeld is Release's answer if the database says that nothing was held.
var errNotHeld = errors.New("locks: released what was not held")

func perConnection() []Contender {
	open := func(driver string, size int) func(context.Context, Env, int) (Locks, error) {
		return func(ctx context.Context, env Env, callers int) (Locks, error) {
			db, err := openPool(ctx, env, driver, size, callers)
			if err != nil {
				return nil, err
			}
			return &sessionLocks{db: db}, nil
		}
	}
	return []Contender{
		{
			Name: PerConnectionPgx, Family: PerConnection, Driver: Pgx, Open: open(Pgx, PoolSize),
			Setup: "pgx/v5/stdlib, pool of 90, none closed for idleness; a *sql.Conn for each lock; pg_try_advisory_lock and " +
				"pg_advisory_unlock, which pgx prepares once on each connection.",
		},
		{
			Name: "connection per lock, pgx, pool of 20", Family: PerConnection, Driver: Pgx, Open: open(Pgx, smallPool),
			Setup: "The same with a pool of 20, which few cores serve faster; but then 20 locks are all that can be held at once.",
		},
		{
			Name: "connection per lock, pgxpool", Family: PerConnection, Driver: Pgx, Open: openPgxpool,
			Setup: "pgxpool, pool of 90; the same statements, prepared by pgx.",
		},
		{
			Name: PerConnectionPQ, Family: PerConnection, Driver: PQ, Open: openPlainPQ,
			Setup: "lib/pq at its defaults, as it is mostly used: pool of 90, none closed for idleness; a *sql.Conn for each lock; the same " +
				"statements, which cost lib/pq two round trips each.",
		},
		{
			Name: "connection per lock, lib/pq, binary_parameters", Family: PerConnection, Driver: PQ, Open: open(PQ, PoolSize),
			Setup: "The same with binary_parameters=yes in the DSN, which saves lib/pq one of the two round trips.",
		},
	}
}

// smallPool is a pool without more connections than a few cores keep busy.
const smallPool = 20

// openPool opens a pool for so many callers, which keeps its connections.
func openPool(ctx context.Context, env Env, driver string, size, callers int) (*sql.DB, error) {
	dsn, err := env.dsn(driver)
	if err != nil {
		return nil, err
	}
	return openDSN(ctx, driver, dsn, size, callers)
}

func openDSN(ctx context.Context, driver, dsn string, size, callers int) (*sql.DB, error) {
	db, err := sql.Open(sqlName(driver), dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	if err := warm(ctx, db, callers); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func openPlainPQ(ctx context.Context, env Env, callers int) (Locks, error) {
	db, err := openDSN(ctx, PQ, env.Postgres, PoolSize, callers)
	if err != nil {
		return nil, err
	}
	return &sessionLocks{db: db}, nil
}

// OnPool holds each lock on a connection of a pool that its caller has other
// uses for, and closes.
func OnPool(db *sql.DB) Locks { return &sharedLocks{sessionLocks{db: db}} }

type sharedLocks struct{ sessionLocks }

func (*sharedLocks) Close() error { return nil }

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
