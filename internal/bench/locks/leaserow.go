package locks

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"time"
)

// lease is how long the locks live that are not tied to a connection; it is
// the kit's default too.
const lease = 10 * time.Second

const (
	createLeases = `
		DROP TABLE IF EXISTS bench_leases;
		CREATE TABLE bench_leases (name text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL)`
	takeLease = `
		INSERT INTO bench_leases VALUES ($1, $2, now() + $3 * interval '1 second')
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires
		WHERE bench_leases.expires < now()`
	giveLease = `DELETE FROM bench_leases WHERE name = $1 AND holder = $2`
)

func leaseRows() []Contender {
	return []Contender{{
		Name: "lease row, pgx", Family: LeaseRow, Driver: Pgx, Open: openLeases,
		Setup: "A table with name as its primary key; INSERT … ON CONFLICT DO UPDATE … WHERE expires < now(), and DELETE … WHERE " +
			"name and holder; pgx/v5/stdlib, pool of 90, statements prepared. The server waits for no disk, which it would in production.",
	}}
}

type leaseLocks struct{ db *sql.DB }

// openLeases makes a new table, or joins those who use it already.
func openLeases(ctx context.Context, env Env, callers int) (Locks, error) {
	db, err := openPool(ctx, env, Pgx, PoolSize, callers)
	if err != nil {
		return nil, err
	}
	if err := makeLeases(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &leaseLocks{db: db}, nil
}

// makeLeases creates the table, unless there is one in which a lease is held.
func makeLeases(ctx context.Context, db *sql.DB) error {
	var exists, used bool
	if err := db.QueryRowContext(ctx, "SELECT to_regclass('bench_leases') IS NOT NULL").Scan(&exists); err != nil {
		return err
	}
	if exists {
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM bench_leases)").Scan(&used); err != nil || used {
			return err
		}
	}
	_, err := db.ExecContext(ctx, createLeases)
	return err
}

func (l *leaseLocks) Close() error { return l.db.Close() }

func (l *leaseLocks) Acquire(ctx context.Context, name string) (Held, error) {
	holder := rand.Text()
	result, err := l.db.ExecContext(ctx, takeLease, name, holder, lease.Seconds())
	if err != nil {
		return nil, err
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, ErrBusy
	}
	return &leaseLock{db: l.db, name: name, holder: holder}, nil
}

type leaseLock struct {
	db           *sql.DB
	name, holder string
}

func (l *leaseLock) Release(ctx context.Context) error {
	result, err := l.db.ExecContext(ctx, giveLease, l.name, l.holder)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return errors.Join(err, errNotHeld)
	}
	return nil
}
