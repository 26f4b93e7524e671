package pgxlatchkey

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/sqllock"
)

// PerTx is [sqllock.PerTx] on a pool of pgx. Each lock has a transaction of its
// own, and occupies a connection of pool as long as it is held.
// [TxFromContext] returns the transaction to the work of the lock.
//
// It works behind a transaction pooler. The transactions have the isolation
// level of the pool's connections.
//
// PerTx panics if pool is nil, or if the lease is too short or too long.
func PerTx(pool *pgxpool.Pool, opts ...sqllock.Option) *sqllock.TxLocker {
	if pool == nil {
		panic("pgxlatchkey: PerTx needs a *pgxpool.Pool that is not nil")
	}
	return sqllock.PerTxFunc(func(ctx context.Context) (sqllock.Tx, error) {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return nil, err
		}
		return Tx(tx), nil
	}, opts...)
}

// TxFromContext returns the transaction on which a locker of [PerTx] holds the
// lock that ctx carries, and whether there is one. Its commit ends the lock and
// makes the work permanent. Unlock rolls back what is not committed.
//
// Unlock uses the connection of the transaction, so close its rows before.
func TxFromContext(ctx context.Context) (pgx.Tx, bool) {
	a, ok := sqllock.TxFrom[adapted](ctx)
	return a.tx, ok
}
