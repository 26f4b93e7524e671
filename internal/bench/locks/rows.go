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
	tryXactLock = "SELECT pg_try_advisory_xact_lock($1)"

	createLeases = `CREATE TABLE IF NOT EXISTS bench_leases (name text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL)`
	takeLease    = `
		INSERT INTO bench_leases VALUES ($1, $2, now() + $3 * interval '1 second')
		ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires = excluded.expires
		WHERE bench_leases.expires < now()`
	giveLease = `DELETE FROM bench_leases WHERE name = $1 AND holder = $2`
)

// rows are a transaction for each lock, and a row for each lock in a table, on
// pools of 90. The server waits for no disk, which it would for rows in
// production.
func rows() []Contender {
	return []Contender{
		{Name: "transaction per lock, pgx", Family: Transaction, Driver: Pgx, Open: openTransactions},
		{Name: "lease row, pgx", Family: LeaseRow, Driver: Pgx, Open: openLeases},
	}
}

func openTransactions(ctx context.Context, env Env, callers int) (Locks, error) {
	db, err := openPool(ctx, env, Pgx, callers)
	return &txLocks{db: db}, err
}

// txLocks holds each lock on a transaction of its own.
type txLocks struct{ db *sql.DB }

func (t *txLocks) Close() error { return t.db.Close() }

func (t *txLocks) Acquire(ctx context.Context, name string) (Held, error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	ok := false
	if err := tx.QueryRowContext(ctx, tryXactLock, advisoryKey(name)).Scan(&ok); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	if !ok {
		return nil, errors.Join(ErrBusy, tx.Rollback())
	}
	return (*txLock)(tx), nil
}

type txLock sql.Tx

func (l *txLock) Release(context.Context) error { return (*sql.Tx)(l).Commit() }

func openLeases(ctx context.Context, env Env, callers int) (Locks, error) {
	db, err := openPool(ctx, env, Pgx, callers)
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, createLeases); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &leaseLocks{db: db}, nil
}

type leaseLocks struct{ db *sql.DB }

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
