package pgxlatchkey_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// eachBeginner runs test with each way to a transaction of pgx.
func eachBeginner(t *testing.T, test func(t *testing.T, dsn string, begin beginner)) {
	for name, begin := range beginners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, pgtest.Database(t), begin)
		})
	}
}

// A rollback to a savepoint releases what was locked after it. Its commit keeps
// the locks until the transaction ends.
func TestSavepoint(t *testing.T) {
	eachBeginner(t, func(t *testing.T, dsn string, newTx beginner) {
		ctx, s := t.Context(), session(t, "pgx", dsn)
		outer := newTx(t, dsn)
		holds := func(key sqllock.Key) bool {
			lock, err := s.TryLock(ctx, key)
			if err != nil && !errors.Is(err, sqllock.ErrHeld) {
				t.Fatal(err)
			}
			return err != nil || lock.Unlock() != nil
		}
		take := func(tx pgx.Tx, key sqllock.Key) {
			if err := sqllock.TryTx(ctx, pgxlatchkey.Tx(tx), key); err != nil {
				t.Fatal(err)
			}
		}
		before, undone, kept := sqllock.ID(1), sqllock.ID(2), sqllock.ID(3)
		take(outer, before)
		inner := begin(t, outer)
		take(inner, undone)
		take(inner, before) // has it already
		if err := inner.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		if !holds(before) || holds(undone) {
			t.Errorf("after the rollback to the savepoint: the lock from before is held %v, want true; the one from after it %v, want false",
				holds(before), holds(undone))
		}
		inner = begin(t, outer)
		take(inner, kept)
		if err := inner.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := sqllock.TryTx(ctx, pgxlatchkey.Tx(inner), kept); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("TryTx of a savepoint that has ended: %v, want sql.ErrTxDone", err)
		}
		if !holds(kept) {
			t.Error("the commit of a savepoint has released its lock")
		}
		if err := outer.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if holds(before) || holds(kept) {
			t.Error("the transaction has ended, and holds a lock")
		}
	})
}

// Commit of the adapter commits. If the server has rolled back instead, Commit
// says so: PostgreSQL responds to the COMMIT of a failed transaction with
// ROLLBACK, and not with an error.
func TestCommit(t *testing.T) {
	eachBeginner(t, func(t *testing.T, dsn string, begin beginner) {
		db, key := dbtest.Open(t, "pgx", dsn), sqllock.ID(1)
		dbtest.Execute(t, db, "CREATE TABLE work (who text UNIQUE DEFERRABLE INITIALLY DEFERRED)")
		for _, tt := range []struct {
			name, statement string
			fails           bool // the statement itself
			committed       bool
		}{
			{"good", "SELECT 1", false, true},
			{"a failed statement", "SELECT nonsense", true, false},
			{"a constraint that is checked at the end", "INSERT INTO work VALUES ('someone')", false, false},
		} {
			dbtest.Execute(t, db, "DELETE FROM work")
			tx := begin(t, dsn)
			if err := errors.Join(sqllock.TryTx(t.Context(), pgxlatchkey.Tx(tx), key), write(t, tx)); err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), tt.statement); (err != nil) != tt.fails {
				t.Fatalf("%s: %v", tt.name, err)
			}
			err := pgxlatchkey.Tx(tx).Commit()
			rows := dbtest.Number(t, db, "SELECT count(*) FROM work")
			if (err == nil) != tt.committed || (rows == 1) != tt.committed {
				t.Errorf("%s: Commit: %v, and %d rows are written; want a commit: %t", tt.name, err, rows, tt.committed)
			}
			if err := pgxlatchkey.Tx(tx).Commit(); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s: a second Commit: %v, want sql.ErrTxDone", tt.name, err)
			}
			lockertest.Eventually(t, "the transaction's lock is free", func() bool { return advisoryLocks(t, db) == 0 })
		}
	})
}

func TestTxErrors(t *testing.T) {
	eachBeginner(t, func(t *testing.T, dsn string, begin beginner) {
		dbtest.Create(t, dbtest.Open(t, "pgx", dsn), sqllock.FenceSchema(sqllock.PostgreSQL))
		lock := mustLock(t, session(t, "pgx", dsn), sqllock.ID(9))
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func(ctx context.Context, tx sqllock.Tx) error{
			"TryTx":   func(ctx context.Context, tx sqllock.Tx) error { return sqllock.TryTx(ctx, tx, sqllock.ID(1)) },
			"LockTx":  func(ctx context.Context, tx sqllock.Tx) error { return sqllock.LockTx(ctx, tx, sqllock.ID(1), 1) },
			"Advance": func(ctx context.Context, tx sqllock.Tx) error { return watermark.Advance(ctx, tx, sqllock.ID(1), 1) },
			"Fence":   func(ctx context.Context, tx sqllock.Tx) error { return sqllock.Fence(ctx, tx, lock) },
		} {
			ended, closed, failed := begin(t, dsn), begin(t, dsn), begin(t, dsn)
			_, err := failed.Exec(t.Context(), "SELECT nonsense")
			if err == nil || errors.Join(ended.Commit(t.Context()), closed.Conn().Close(t.Context())) != nil {
				t.Fatal("the transactions do not end")
			}
			if err := call(t.Context(), pgxlatchkey.Tx(ended)); !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("%s of a committed transaction: %v, want sql.ErrTxDone", name, err)
			}
			err = call(t.Context(), pgxlatchkey.Tx(closed))
			if !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("%s on a closed connection: %v, want ErrUnavailable", name, err)
			}
			dbtest.TellsNothing(t, err, dsn)
			if err := call(t.Context(), pgxlatchkey.Tx(failed)); dbtest.State(err) != "25P02" {
				t.Errorf("%s of a failed transaction: %v, want SQLSTATE 25P02", name, err)
			}
			if err := call(over, pgxlatchkey.Tx(begin(t, dsn))); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, its context has ended: %v", name, err)
			}
		}
	})
}

// A caller that leaves the wait of LockTx takes its transaction along, and the
// server does not go on waiting for the lock.
func TestLeavesTheWait(t *testing.T) {
	eachBeginner(t, func(t *testing.T, dsn string, begin beginner) {
		db, key := dbtest.Open(t, "pgx", dsn), sqllock.ID(1)
		lock, tx := mustLock(t, session(t, "pgx", dsn), key), begin(t, dsn)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- sqllock.LockTx(ctx, pgxlatchkey.Tx(tx), key, time.Minute) }()
		lockertest.Eventually(t, "the transaction waits", func() bool { return dbtest.WaitForLocks(t, db) == 1 })
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) {
			t.Errorf("LockTx: %v, want context.Canceled", err)
		}
		lockertest.Eventually(t, "the server has ended the wait", func() bool { return dbtest.WaitForLocks(t, db) == 0 })
		if tx.Commit(t.Context()) == nil {
			t.Error("the transaction goes on")
		}
		unlock(t, lock)
		lockertest.Eventually(t, "no lock is left", func() bool { return advisoryLocks(t, db) == 0 })
	})
}
