package locks

import (
	"context"
	"database/sql"
	"errors"

	"github.com/jackc/pgx/v5"
)

const tryXactLock = "SELECT pg_try_advisory_xact_lock($1)"

func transactions() []Contender {
	open := func(driver string) func(context.Context, Env, int) (Locks, error) {
		return func(ctx context.Context, env Env, callers int) (Locks, error) {
			db, err := openPool(ctx, env, driver, PoolSize, callers)
			if err != nil {
				return nil, err
			}
			return &txLocks{db: db}, nil
		}
	}
	const setup = "BEGIN, pg_try_advisory_xact_lock, COMMIT, three round trips, on a pool of 90; lib/pq with binary_parameters=yes."
	return []Contender{
		{Name: "transaction per lock, pgx", Family: Transaction, Driver: Pgx, Setup: setup, Open: open(Pgx)},
		{Name: "transaction per lock, pgxpool", Family: Transaction, Driver: Pgx, Setup: setup, Open: openPgxpoolTx},
		{Name: "transaction per lock, lib/pq", Family: Transaction, Driver: PQ, Setup: setup, Open: open(PQ)},
	}
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

// pgxpoolTxLocks is txLocks without database/sql.
type pgxpoolTxLocks struct{ *pgxpoolLocks }

func openPgxpoolTx(ctx context.Context, env Env, callers int) (Locks, error) {
	l, err := openPgxpool(ctx, env, callers)
	if err != nil {
		return nil, err
	}
	return pgxpoolTxLocks{l.(*pgxpoolLocks)}, nil
}

func (p pgxpoolTxLocks) Acquire(ctx context.Context, name string) (Held, error) {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	ok := false
	if err := tx.QueryRow(ctx, tryXactLock, advisoryKey(name)).Scan(&ok); err != nil {
		return nil, errors.Join(err, tx.Rollback(ctx))
	}
	if !ok {
		return nil, errors.Join(ErrBusy, tx.Rollback(ctx))
	}
	return pgxTxLock{tx}, nil
}

type pgxTxLock struct{ tx pgx.Tx }

func (l pgxTxLock) Release(ctx context.Context) error { return l.tx.Commit(ctx) }
