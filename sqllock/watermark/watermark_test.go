package watermark_test

import (
	"context"
	"database/sql"
	"errors"
	"math"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// marked opens a database with the table of watermarks and one for the work.
func marked(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	db := dbtest.Open(t, driver, dsn)
	dbtest.Create(t, db, watermark.Schema(sqllock.PostgreSQL))
	dbtest.Execute(t, db, "CREATE TABLE work (who text)")
	return db
}

// markedWork advances key and writes the name who, in one transaction. It
// commits even after an error, as a careless caller would. It returns the error
// of Advance.
func markedWork(ctx context.Context, t *testing.T, db *sql.DB, key sqllock.Key, to int64, who string) error {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	markErr := watermark.Advance(ctx, tx, key, to)
	_, writeErr := tx.Exec("INSERT INTO work VALUES ($1)", who)
	commitErr := tx.Commit()
	if passed := writeErr == nil && commitErr == nil; passed != (markErr == nil) {
		t.Errorf("%s: Advance said %v; write %v, commit %v", who, markErr, writeErr, commitErr)
	}
	return markErr
}

// Each key has a watermark of its own, and the work of a lower number is not
// committed. Package internal/databases has more steps, on each kind of database.
func TestAdvance(t *testing.T) {
	keys := []sqllock.Key{
		sqllock.Namespace("mark").Key("report"), sqllock.ID(math.MinInt64),
		sqllock.Pair(-1, 1), sqllock.ID(sqllock.Pair(-1, 1).Int64()), sqllock.Pair(math.MinInt32, math.MinInt32),
	}
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		for i, key := range keys {
			to := math.MaxInt64 - int64(i)
			for _, want := range []error{nil, watermark.ErrPassed} {
				if err := markedWork(t.Context(), t, db, key, to, "a"); err != want {
					t.Errorf("key %d: %v, want %v", i, err, want)
				}
			}
			if at, ok, err := watermark.Get(t.Context(), db, key); err != nil || !ok || at != to {
				t.Errorf("Get of key %d: %d, %t, %v, want %d", i, at, ok, err, to)
			}
		}
		if n := dbtest.Number(t, db, "SELECT count(*) FROM work"); n != len(keys) {
			t.Errorf("the work of %d marks is in the database, want that of %d", n, len(keys))
		}
	})
}

// The second transaction waits for the first. Its result depends on whether the
// first has committed. Get does not wait, and returns what is committed. In a
// transaction it returns the transaction's own.
func TestAdvanceWaits(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		for i, tt := range []struct {
			name   string
			marked bool // before, at 0
			end    func(*sql.Tx) error
			want   error
		}{
			{"no mark, commit", false, (*sql.Tx).Commit, watermark.ErrPassed},
			{"no mark, rollback", false, (*sql.Tx).Rollback, nil},
			{"a mark, commit", true, (*sql.Tx).Commit, watermark.ErrPassed},
			{"a mark, rollback", true, (*sql.Tx).Rollback, nil},
		} {
			key := sqllock.ID(int64(i))
			if tt.marked {
				if err := markedWork(t.Context(), t, db, key, 0, "before"); err != nil {
					t.Fatal(err)
				}
			}
			first := dbtest.Transaction(t, db)
			if err := watermark.Advance(t.Context(), first, key, 5); err != nil {
				t.Fatal(err)
			}
			if at, ok, err := watermark.Get(t.Context(), db, key); err != nil || ok != tt.marked || at != 0 {
				t.Errorf("%s: Get beside the first: %d, %t, %v, want what is committed", tt.name, at, ok, err)
			}
			if at, ok, err := watermark.Get(t.Context(), first, key); err != nil || !ok || at != 5 {
				t.Errorf("%s: Get in the first: %d, %t, %v, want 5", tt.name, at, ok, err)
			}
			second := waits(t.Context(), t, db, key, 5)
			if err := tt.end(first); err != nil {
				t.Fatal(err)
			}
			if err := <-second; err != tt.want {
				t.Errorf("%s: the second: %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}

// waits calls markedWork, and returns when it waits for another transaction.
func waits(ctx context.Context, t *testing.T, db *sql.DB, key sqllock.Key, to int64) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- markedWork(ctx, t, db, key, to, "second") }()
	lockertest.Eventually(t, "the second waits for the first", func() bool { return dbtest.WaitForLocks(t, db) == 1 })
	return ended
}

// If the snapshot of a transaction is older than another's Advance, the error
// is a serialization failure, and not ErrPassed.
func TestAdvanceSerializationFailure(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT 1 FROM work"); err != nil {
			t.Fatal(err)
		}
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 1, "first"); err != nil {
			t.Fatal(err)
		}
		if err := watermark.Advance(t.Context(), tx, sqllock.ID(1), 2); dbtest.State(err) != "40001" || errors.Is(err, watermark.ErrPassed) {
			t.Errorf("Advance: %v, want SQLSTATE 40001", err)
		}
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 2, "again"); err != nil {
			t.Errorf("tried again: %v", err)
		}
	})
}
