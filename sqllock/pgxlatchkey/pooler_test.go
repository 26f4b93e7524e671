package pgxlatchkey_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
)

// Behind PgBouncer in transaction mode pgx in its default mode would use
// statements that another client has prepared. The locks do not: forty callers
// of two pools share two server connections, and no two are inside at once.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 2)
	if err != nil {
		t.Fatal(err)
	}
	defer bouncer.Close()
	direct := dbtest.Open(t, "pgx", cluster.DSN(""))
	dbtest.Create(t, direct, sqllock.FenceSchema(sqllock.PostgreSQL))
	lock := mustLock(t, session(t, "pgx", cluster.DSN("")), sqllock.ID(100))
	var (
		wg                 sync.WaitGroup
		inside             [4]atomic.Int32
		perTx, locked, try atomic.Int32
	)
	for range 2 {
		pool := newPool(t, bouncer.DSN("")) // in the default mode of pgx
		locks := pgxlatchkey.PerTx(pool)
		enter := func(i int) {
			if inside[i].Add(1) > 1 {
				t.Error("two transactions hold one key")
			}
			inside[i].Add(-1)
		}
		inTx := func(work func(tx sqllock.Tx) error) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Errorf("BEGIN: %v", err)
				return
			}
			err = work(pgxlatchkey.Tx(tx))
			if end := tx.Rollback(t.Context()); end != nil {
				t.Errorf("ROLLBACK: %v", end)
			}
			if err != nil && !errors.Is(err, sqllock.ErrHeld) {
				t.Error(err)
			}
		}
		for i := range 20 {
			key := i % len(inside)
			wg.Go(func() {
				for range 10 {
					switch i % 3 {
					case 0:
						err := sqllock.Do(t.Context(), locks, sqllock.ID(int64(key)), func(context.Context) error { enter(key); perTx.Add(1); return nil })
						if err != nil && !errors.Is(err, sqllock.ErrHeld) && !errors.Is(err, sqllock.ErrUnavailable) {
							t.Errorf("Do: %v", err)
						}
					case 1:
						inTx(func(tx sqllock.Tx) error {
							err := sqllock.LockTx(t.Context(), tx, sqllock.ID(int64(key)), 50*time.Millisecond)
							if err == nil {
								enter(key)
								locked.Add(1)
							}
							return err
						})
					case 2:
						inTx(func(tx sqllock.Tx) error {
							if err := sqllock.TryTx(t.Context(), tx, sqllock.ID(int64(key))); err != nil {
								return err
							}
							enter(key)
							try.Add(1)
							return sqllock.Fence(t.Context(), tx, lock)
						})
					}
				}
			})
		}
	}
	wg.Wait()
	if perTx.Load() == 0 || locked.Load() == 0 || try.Load() == 0 {
		t.Errorf("grants of PerTx %d, LockTx %d, TryTx %d; want some of each", perTx.Load(), locked.Load(), try.Load())
	}
	unlock(t, lock)
	if n := advisoryLocks(t, direct); n != 0 {
		t.Errorf("%d locks remain", n)
	}
}
