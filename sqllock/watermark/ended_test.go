package watermark_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// calls are the calls of this package on a transaction.
var calls = map[string]func(ctx context.Context, tx *sql.Tx) error{
	"Advance": func(ctx context.Context, tx *sql.Tx) error { return watermark.Advance(ctx, tx, sqllock.ID(7), 1) },
	"Get": func(ctx context.Context, tx *sql.Tx) error {
		_, _, err := watermark.Get(ctx, tx, sqllock.ID(7))
		return err
	},
}

// A call under a context that has ended names the end once. If the loss of a
// lock has ended the context, the error is ErrLost too.
func TestErrorsUnderAnEndedContext(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		memory := sqllock.NewMemory()
		lost, cancel := dbtest.Lock(t, memory, sqllock.ID(1)).Bind(t.Context())
		defer cancel()
		below, cancel := context.WithTimeout(lost, time.Hour)
		defer cancel()
		memory.Lose()
		for name, call := range calls {
			on := func(ctx context.Context) error {
				tx := dbtest.Transaction(t, db)
				defer func() { _ = tx.Rollback() }()
				return call(ctx, tx)
			}
			err := on(canceled)
			dbtest.NamesOnce(t, name+", canceled", err, context.Canceled)
			if errors.Is(err, sqllock.ErrLost) {
				t.Errorf("%s, canceled: %v, and no lock was lost", name, err)
			}
			dbtest.NamesOnce(t, name+", after the deadline", on(late), context.DeadlineExceeded)
			dbtest.NamesOnce(t, name+", lock lost", on(lost), sqllock.ErrLost, context.Canceled)
			dbtest.NamesOnce(t, name+", lock lost, a context below", on(below), sqllock.ErrLost, context.Canceled)
		}
	})
}

// A call that waits in the database when the lock is lost returns ErrLost.
func TestLossWhileACallWaits(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		first := dbtest.Transaction(t, db)
		if err := watermark.Advance(t.Context(), first, sqllock.ID(1), 1); err != nil {
			t.Fatal(err)
		}
		memory := sqllock.NewMemory()
		ctx, cancel := dbtest.Lock(t, memory, sqllock.ID(1)).Bind(t.Context())
		defer cancel()
		passed := make(chan error, 1)
		go func() { passed <- markedWork(ctx, t, db, sqllock.ID(1), 1, "second") }()
		lockertest.Eventually(t, "the second waits for the first", func() bool { return dbtest.WaitForLocks(t, db) == 1 })
		memory.Lose()
		dbtest.NamesOnce(t, "Advance", <-passed, sqllock.ErrLost, context.Canceled)
	})
}

// A transaction that the lost lock's context has ended fails with ErrLost, also
// in a call whose own context goes on.
func TestTransactionEndedByALoss(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		for name, call := range calls {
			for _, lose := range []bool{false, true} {
				memory := sqllock.NewMemory()
				work, cancel := dbtest.Lock(t, memory, sqllock.ID(1)).Bind(t.Context())
				defer cancel()
				ctx, end := context.WithCancel(work)
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					t.Fatal(err)
				}
				if lose {
					memory.Lose()
				}
				end()
				lockertest.Eventually(t, "the transaction is rolled back", func() bool {
					_, err := tx.Exec("SELECT 1")
					return errors.Is(err, sql.ErrTxDone)
				})
				if err := call(context.WithoutCancel(ctx), tx); err == nil || errors.Is(err, sqllock.ErrLost) != lose {
					t.Errorf("%s: %v; the lock is lost: %t", name, err, lose)
				}
			}
		}
	})
}
