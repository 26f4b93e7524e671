package pgxlatchkey_test

import (
	"errors"
	"sync"
	"sync/atomic"
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

// Behind PgBouncer in transaction mode the server connections go from one
// client to another. Some of pgx's modes prepare statements, and would use those
// of another client. Here pools of all modes share two server connections. Each
// call works, and no two holders of a key are inside at once.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	const rounds, lockKey, ownKey = 10, 1, 10
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer bouncer.Close()
	direct := dbtest.Open(t, "pgx", cluster.DSN(""))
	dbtest.Create(t, direct, append(sqllock.FenceSchema(sqllock.PostgreSQL), watermark.Schema(sqllock.PostgreSQL)...))
	fencing := mustLock(t, session(t, "pgx", cluster.DSN("")), sqllock.ID(100))
	var (
		wg     sync.WaitGroup
		inside atomic.Int32
	)
	enter := func() {
		if inside.Add(1) > 1 {
			t.Error("two transactions hold one key")
		}
		inside.Add(-1)
	}
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		pool := newPool(t, bouncer.DSN(""), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		locks, own := pgxlatchkey.PerTx(pool), sqllock.ID(ownKey+int64(i))
		wg.Go(func() {
			for range rounds {
				lock, err := locks.Lock(t.Context(), sqllock.ID(lockKey))
				if err != nil {
					t.Errorf("%v: Lock: %v", mode, err)
					return
				}
				enter()
				unlock(t, lock)
			}
		})
		wg.Go(func() {
			for n := range int64(rounds) {
				if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
					a := pgxlatchkey.Tx(tx)
					if sqllock.TryTx(t.Context(), a, sqllock.ID(lockKey)) == nil {
						enter()
					}
					return errors.Join(sqllock.TryTx(t.Context(), a, own), sqllock.LockTx(t.Context(), a, own, time.Second),
						sqllock.Fence(t.Context(), a, fencing), watermark.Advance(t.Context(), a, own, n))
				}); err != nil {
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
