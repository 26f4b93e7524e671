package pgxlatchkey_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// modes are the ways in which pgx sends statements. Some prepare them, which a
// transaction pooler without support for that does not bear.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

// Each function works in each mode, while the server connections of a
// transaction pooler go from one client to another.
func TestModesBehindPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer bouncer.Close()
	direct := dbtest.Open(t, "pgx", cluster.DSN(""))
	dbtest.Create(t, direct, append(sqllock.FenceSchema(sqllock.PostgreSQL), watermark.Schema(sqllock.PostgreSQL)...))
	fencing := mustLock(t, session(t, "pgx", cluster.DSN("")), sqllock.ID(100))
	var wg sync.WaitGroup
	for i, mode := range modes {
		config, err := pgxpool.ParseConfig(bouncer.DSN(""))
		if err != nil {
			t.Fatal(err)
		}
		config.ConnConfig.DefaultQueryExecMode = mode
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		locks, key := pgxlatchkey.PerTx(pool, sqllock.WithLease(10*time.Second)), sqllock.ID(int64(i))
		work := func(tx sqllock.Tx, n int64) error {
			return errors.Join(
				sqllock.TryTx(t.Context(), tx, key),
				sqllock.LockTx(t.Context(), tx, key, time.Second),
				sqllock.Fence(t.Context(), tx, fencing),
				watermark.Advance(t.Context(), tx, key, n))
		}
		for range 2 {
			wg.Go(func() {
				for range 10 {
					err := sqllock.Do(t.Context(), locks, sqllock.ID(int64(10+i)), func(ctx context.Context) error {
						tx, ok := pgxlatchkey.TxFromContext(ctx)
						if !ok {
							return errors.New("no transaction")
						}
						return tx.Commit(ctx)
					})
					if err != nil && !errors.Is(err, sqllock.ErrHeld) && !errors.Is(err, sqllock.ErrUnavailable) {
						t.Errorf("%v: Do: %v", mode, err)
					}
				}
			})
		}
		wg.Go(func() {
			for n := range int64(10) {
				err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return work(pgxlatchkey.Tx(tx), n+1) })
				if err != nil {
					t.Errorf("%v: %v", mode, err)
				}
			}
		})
	}
	wg.Wait()
	unlock(t, fencing)
	if n := advisoryLocks(t, direct); n != 0 {
		t.Errorf("%d locks remain", n)
	}
}
