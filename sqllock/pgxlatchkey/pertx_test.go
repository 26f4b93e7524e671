package pgxlatchkey_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
)

func TestPerTx(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db, pool := dbtest.Open(t, "pgx", dsn), newPool(t, dsn)
	dbtest.Execute(t, db, "CREATE TABLE work (who text)")
	locks, rival := pgxlatchkey.PerTx(pool), session(t, "pgx", dsn)
	key := sqllock.ID(1)
	for _, commit := range []bool{true, false} {
		lock := mustLock(t, locks, key)
		if _, err := rival.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryLock of a Session: %v, want ErrHeld", err)
		}
		tx, ok := pgxlatchkey.TxFromContext(lock.Context())
		if !ok {
			t.Fatal("the lock's context has no transaction")
		}
		if err := write(t, tx); err != nil {
			t.Fatal(err)
		}
		if commit {
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			unlock(t, mustLock(t, rival, key)) // the commit has ended the lock
		}
		unlock(t, lock)
		if _, err := tx.Exec(t.Context(), "SELECT 1"); !errors.Is(err, pgx.ErrTxClosed) {
			t.Errorf("the transaction after Unlock: %v, want pgx.ErrTxClosed", err)
		}
	}
	expectRows(t, db, 1) // the committed one
	if stat := pool.Stat(); stat.AcquiredConns() != 0 || stat.TotalConns() != 1 {
		t.Errorf("%d connections in use, %d open; want 0 and 1", stat.AcquiredConns(), stat.TotalConns())
	}
	lock := mustLock(t, rival, key)
	if _, err := locks.TryLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryLock of a key of a Session: %v, want ErrHeld", err)
	}
	for name, ctx := range map[string]context.Context{"no lock": t.Context(), "a Session's lock": lock.Context()} {
		if tx, ok := pgxlatchkey.TxFromContext(ctx); ok || tx != nil {
			t.Errorf("a context of %s has a transaction", name)
		}
	}
}

// An Unlock while rows are open destroys the connection, and with it the lock.
func TestPerTxWithOpenRows(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db, pool := dbtest.Open(t, "pgx", dsn), newPool(t, dsn)
	locks := pgxlatchkey.PerTx(pool)
	lock := mustLock(t, locks, sqllock.ID(1))
	tx, _ := pgxlatchkey.TxFromContext(lock.Context())
	rows, err := tx.Query(t.Context(), "SELECT generate_series(1, 10)")
	if err != nil || !rows.Next() {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != sqllock.ErrLost {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	rows.Close()
	lockertest.Eventually(t, "the lock is gone", func() bool { return advisoryLocks(t, db) == 0 && pool.Stat().AcquiredConns() == 0 })
	unlock(t, mustLock(t, locks, sqllock.ID(1)))
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	pool := newPool(t, pgtest.Database(t))
	httptesting.WantPanic(t, "pgxlatchkey", "PerTx", func() { pgxlatchkey.PerTx(nil) })
	httptesting.WantPanic(t, "sqllock", "", func() { pgxlatchkey.PerTx(pool, sqllock.WithLease(time.Millisecond)) })
}
