package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// calls are the calls that a holder makes for its work, each on a new
// transaction. Fence gets a lock that is not lost.
func calls(t *testing.T, db *sql.DB, locks sqllock.Locker, good *sqllock.Lock) map[string]func(ctx context.Context) error {
	on := func(call func(ctx context.Context, tx *sql.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error {
			tx := transaction(t, db)
			err := call(ctx, tx)
			_ = tx.Rollback()
			return err
		}
	}
	return map[string]func(ctx context.Context) error{
		"Fence": on(func(ctx context.Context, tx *sql.Tx) error { return sqllock.Fence(ctx, tx, good) }),
		"TryTx": on(func(ctx context.Context, tx *sql.Tx) error { return sqllock.TryTx(ctx, tx, sqllock.ID(7)) }),
		"TryRTx": on(func(ctx context.Context, tx *sql.Tx) error {
			return sqllock.TryRTx(ctx, tx, sqllock.ID(7))
		}),
		"LockTx": on(func(ctx context.Context, tx *sql.Tx) error {
			return sqllock.LockTx(ctx, tx, sqllock.ID(7), time.Second)
		}),
		"TryLock": func(ctx context.Context) error { _, err := locks.TryLock(ctx, sqllock.ID(8)); return err },
		"Lock":    func(ctx context.Context) error { _, err := locks.Lock(ctx, sqllock.ID(8)); return err },
	}
}

// A call under a context that has ended names that end once. If the loss of a
// lock has ended the context, the error is ErrLost too.
func TestErrorsUnderAnEndedContext(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		locks := session(t, driver, dsn)
		good := mustLock(t, locks, sqllock.ID(9))
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
		defer cancel()
		memory := sqllock.NewMemory()
		lost, cancel := mustLock(t, memory, sqllock.ID(1)).Bind(t.Context())
		defer cancel()
		below, cancel := context.WithTimeout(lost, time.Hour)
		defer cancel()
		memory.Lose()
		for name, call := range calls(t, db, locks, good) {
			err := call(canceled)
			namesOnce(t, name+", canceled", err, context.Canceled)
			if errors.Is(err, sqllock.ErrLost) {
				t.Errorf("%s, canceled: %v, but no lock was lost", name, err)
			}
			namesOnce(t, name+", after the deadline", call(late), context.DeadlineExceeded)
			namesOnce(t, name+", lock lost", call(lost), sqllock.ErrLost, context.Canceled)
			namesOnce(t, name+", lock lost, a context below", call(below), sqllock.ErrLost, context.Canceled)
		}
	})
}

// A call that waits in the database when its context ends names that end, and the
// loss of the lock if this is the cause.
func TestContextEndsWhileACallWaits(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		first := transaction(t, db)
		if err := sqllock.Fence(t.Context(), first, lock); err != nil {
			t.Fatal(err)
		}
		memory := sqllock.NewMemory()
		bound, cancel := mustLock(t, memory, sqllock.ID(1)).Bind(t.Context())
		defer cancel()
		canceled, cancelIt := context.WithCancel(t.Context())
		for _, tt := range []struct {
			ctx  context.Context
			end  func()
			want []error
		}{
			{canceled, cancelIt, []error{context.Canceled}},
			{bound, func() { memory.Lose() }, []error{context.Canceled, sqllock.ErrLost}},
		} {
			passed := make(chan error, 1)
			go func() { passed <- fencedWork(tt.ctx, t, db, lock, "second") }()
			lockertest.Eventually(t, "the second waits for the first", func() bool { return waitForLocks(t, db) > 0 })
			tt.end()
			namesOnce(t, "Fence", <-passed, tt.want...)
		}
	})
}

// A transaction that ended with the context of a lost lock fails with ErrLost.
// So does a call whose own context has not ended.
func TestTransactionEndedByALoss(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		good := mustLock(t, session(t, driver, dsn), sqllock.ID(9))
		for name, call := range map[string]func(ctx context.Context, tx *sql.Tx) error{
			"Fence": func(ctx context.Context, tx *sql.Tx) error { return sqllock.Fence(ctx, tx, good) },
			"TryTx": func(ctx context.Context, tx *sql.Tx) error { return sqllock.TryTx(ctx, tx, sqllock.ID(7)) },
		} {
			for _, lose := range []bool{false, true} {
				memory := sqllock.NewMemory()
				work, cancel := mustLock(t, memory, sqllock.ID(1)).Bind(t.Context())
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
