package pgxlatchkey_test

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/pgxlatchkey"
)

// fenced opens a database and gives it the fence's table and one that work writes
// to. The lock is good until makeStale is called.
func fenced(t *testing.T, dsn string) (db *sql.DB, lock *sqllock.Lock, makeStale func()) {
	t.Helper()
	db = dbtest.Open(t, "pgx", dsn)
	dbtest.Create(t, db, sqllock.FenceSchema(sqllock.PostgreSQL))
	dbtest.Execute(t, db, "CREATE TABLE work (who text)")
	lock = mustLock(t, session(t, "pgx", dsn), sqllock.ID(1))
	return db, lock, func() {
		dbtest.Execute(t, db, "UPDATE latchkey_fence SET lsn = lsn + 1") // as if a later holder had passed the fence
	}
}

// pass lets lock pass the fence in tx, and commits.
func pass(t *testing.T, tx pgx.Tx, lock *sqllock.Lock) {
	t.Helper()
	if err := errors.Join(sqllock.Fence(t.Context(), pgxlatchkey.Tx(tx), lock), tx.Commit(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// expectRows checks how many rows work has written.
func expectRows(t *testing.T, db *sql.DB, want int) {
	t.Helper()
	if n := dbtest.Number(t, db, "SELECT count(*) FROM work"); n != want {
		t.Errorf("%d rows are written, want %d", n, want)
	}
}

func write(t *testing.T, tx pgx.Tx) error {
	t.Helper()
	_, err := tx.Exec(t.Context(), "INSERT INTO work VALUES ('someone')")
	return err
}

// A stale lock takes the transaction down, also if a savepoint of it is rejected,
// or a savepoint in another one.
func TestFence(t *testing.T) {
	depths := map[string]func(t *testing.T, tx pgx.Tx) []pgx.Tx{
		"none": func(_ *testing.T, tx pgx.Tx) []pgx.Tx { return []pgx.Tx{tx} },
		"one":  func(t *testing.T, tx pgx.Tx) []pgx.Tx { return []pgx.Tx{begin(t, tx)} },
		"two, after one that has ended": func(t *testing.T, tx pgx.Tx) []pgx.Tx {
			_ = begin(t, tx).Commit(t.Context())
			a := begin(t, tx)
			return []pgx.Tx{a, begin(t, a)}
		},
	}
	for depth, savepoints := range depths {
		t.Run(depth, func(t *testing.T) {
			eachBeginner(t, func(t *testing.T, dsn string, newTx beginner) {
				db, lock, makeStale := fenced(t, dsn)
				pass(t, newTx(t, dsn), lock)
				makeStale()
				whole := newTx(t, dsn)
				if err := write(t, whole); err != nil {
					t.Fatal(err)
				}
				inner := savepoints(t, whole)
				if err := sqllock.Fence(t.Context(), pgxlatchkey.Tx(inner[len(inner)-1]), lock); !errors.Is(err, sqllock.ErrFenced) {
					t.Errorf("Fence of a stale lock: %v, want ErrFenced", err)
				}
				for i := len(inner) - 1; i >= 0; i-- { // a careless caller goes on
					_ = inner[i].Rollback(t.Context())
				}
				if write(t, whole) == nil || whole.Commit(t.Context()) == nil {
					t.Error("a rejected transaction goes on")
				}
				expectRows(t, db, 0)
			})
		})
	}
}

// With rows still open Fence fails, and the transaction writes nothing.
func TestFenceWithOpenRows(t *testing.T) {
	eachBeginner(t, func(t *testing.T, dsn string, begin beginner) {
		db, lock, _ := fenced(t, dsn)
		tx := begin(t, dsn)
		if err := write(t, tx); err != nil {
			t.Fatal(err)
		}
		rows, err := tx.Query(t.Context(), "SELECT generate_series(1, 10)")
		if err != nil || !rows.Next() {
			t.Fatal(err)
		}
		if err := sqllock.Fence(t.Context(), pgxlatchkey.Tx(tx), lock); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Fence with rows open: %v, want ErrUnavailable", err)
		}
		rows.Close()
		if tx.Commit(t.Context()) == nil {
			t.Error("the transaction goes on")
		}
		expectRows(t, db, 0)
	})
}

// A rejected transaction of a pool gives its connection back as it was.
func TestFenceKeepsPool(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	_, lock, makeStale := fenced(t, dsn)
	pool := newPool(t, dsn)
	pass(t, begin(t, pool), lock)
	makeStale()
	for range 5 {
		if err := sqllock.Fence(t.Context(), pgxlatchkey.Tx(begin(t, pool)), lock); !errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence of a stale lock: %v, want ErrFenced", err)
		}
	}
	if stat := pool.Stat(); stat.NewConnsCount() != 1 || stat.AcquiredConns() != 0 {
		t.Errorf("the pool has made %d connections, and %d are not back; want 1 and 0", stat.NewConnsCount(), stat.AcquiredConns())
	}
}
