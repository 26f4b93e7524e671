package watermark_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// If the table cannot be used, the error says what to do, and no work is
// committed.
func TestAdvanceWithoutTable(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := dbtest.Open(t, driver, dsn)
		dbtest.Execute(t, db, "CREATE TABLE work (who text)")
		refused := func(name string, db *sql.DB, state string, words ...string) {
			t.Helper()
			err := markedWork(t.Context(), t, db, sqllock.ID(1), 1, name)
			if err == nil || dbtest.State(err) != state {
				t.Fatalf("%s: %v, want SQLSTATE %s", name, err, state)
			}
			for _, word := range words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%s: %v says nothing of %s", name, err, word)
				}
			}
			dbtest.TellsNothing(t, err, dsn)
			_, ok, err := watermark.Get(t.Context(), db, sqllock.ID(1))
			if err == nil || ok || dbtest.State(err) != state || !strings.Contains(err.Error(), words[0]) {
				t.Errorf("%s: Get: %t, %v, want SQLSTATE %s and %s", name, ok, err, state, words[0])
			}
			dbtest.TellsNothing(t, err, dsn)
		}
		refused("no table", db, "42P01", "create it with watermark.Schema", "search_path")

		dbtest.Execute(t, db, "CREATE SCHEMA jobs")
		elsewhere := dbtest.Open(t, driver, dsn+"&search_path=jobs,public")
		dbtest.Create(t, elsewhere, watermark.Schema(sqllock.PostgreSQL))
		refused("another schema", db, "42P01", "another schema", "search_path")
		if err := markedWork(t.Context(), t, elsewhere, sqllock.ID(1), 1, "found"); err != nil {
			t.Errorf("with the schema in the search_path: %v", err)
		}

		dbtest.Create(t, db, watermark.Schema(sqllock.PostgreSQL))
		role := "clerk_" + driver
		dbtest.Execute(t, db, "CREATE ROLE "+role+"; GRANT INSERT ON work TO "+role)
		t.Cleanup(func() {
			_, _ = db.Exec("DROP OWNED BY " + role + "; DROP ROLE " + role)
		})
		clerk := dbtest.Open(t, driver, dsn+"&role="+role)
		refused("no right", clerk, "42501", "grant it INSERT, SELECT and UPDATE")
		dbtest.Execute(t, db, "GRANT INSERT, SELECT, UPDATE ON latchkey_watermarks TO "+role)
		if err := markedWork(t.Context(), t, clerk, sqllock.ID(1), 1, "with the right"); err != nil {
			t.Errorf("with the rights of the error's text: %v", err)
		}
	})
}

// calls are the calls of this package on a transaction.
var calls = map[string]func(ctx context.Context, tx *sql.Tx) error{
	"Advance": func(ctx context.Context, tx *sql.Tx) error { return watermark.Advance(ctx, tx, sqllock.ID(7), 1) },
	"Get": func(ctx context.Context, tx *sql.Tx) error {
		_, _, err := watermark.Get(ctx, tx, sqllock.ID(7))
		return err
	},
}

// A call under a context that has ended names the end once. If the loss of a
// lock has ended the context, the error is ErrLost too. In a transaction that
// has ended the error is sql.ErrTxDone.
func TestEnded(t *testing.T) {
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
			done := dbtest.Transaction(t, db)
			if err := done.Commit(); err != nil {
				t.Fatal(err)
			}
			if err := call(t.Context(), done); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s in a transaction that is done: %v, want sql.ErrTxDone", name, err)
			}
		}
		if err := markedWork(canceled, t, db, sqllock.ID(7), 1, "canceled"); !errors.Is(err, context.Canceled) {
			t.Errorf("Advance: %v, want context.Canceled", err)
		}
		if err := markedWork(t.Context(), t, db, sqllock.ID(7), 1, "then"); err != nil {
			t.Errorf("the mark has moved without a commit: %v", err)
		}
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
