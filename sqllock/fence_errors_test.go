package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The error for a role without the rights names the rights.
func TestFenceWithoutRights(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		tx := transaction(t, db)
		if _, err := tx.Exec("SET LOCAL ROLE pg_read_all_stats"); err != nil {
			t.Fatal(err)
		}
		err := sqllock.Fence(t.Context(), tx, lock)
		if err == nil || !strings.Contains(err.Error(), "INSERT, SELECT and UPDATE") || stateOf(err) != "42501" {
			t.Errorf("Fence: %v, want one that names the rights, with SQLSTATE 42501", err)
		}
		if err := tx.Commit(); err == nil {
			t.Error("the transaction was committed")
		}
	})
}

// A serialization failure concerns the transaction, not the lock.
func TestFenceSerializationFailure(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		lock := mustLock(t, session(t, driver, dsn), sqllock.ID(1))
		if err := fencedWork(t.Context(), t, db, lock, "first"); err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("SELECT 1 FROM work"); err != nil { // before the fence: the snapshot is older than it
			t.Fatal(err)
		}
		if err := fencedWork(t.Context(), t, db, lock, "second"); err != nil {
			t.Fatal(err)
		}
		if err := sqllock.Fence(t.Context(), tx, lock); stateOf(err) != "40001" || errors.Is(err, sqllock.ErrFenced) {
			t.Errorf("Fence: %v, want SQLSTATE 40001", err)
		}
		if err := fencedWork(t.Context(), t, db, lock, "tried again"); err != nil {
			t.Errorf("tried again: %v", err)
		}
	})
}

// While rows of the transaction are open, no statement can be sent on it, so
// the fence cannot ask. A rollback to a savepoint removes the fence's error. In
// neither case is a stale holder's work committed.
func TestFenceCannotBeGotRound(t *testing.T) {
	ways := map[string]func(t *testing.T, tx *sql.Tx, fence func()){
		"open rows": func(t *testing.T, tx *sql.Tx, fence func()) {
			rows, err := tx.Query("SELECT generate_series(1, 10000)")
			if err != nil || !rows.Next() {
				t.Fatalf("no rows: %v", errors.Join(err, rows.Err()))
			}
			fence()
			_ = rows.Close() //nolint:sqlclosecheck // the fence comes before
		},
		"savepoint": func(t *testing.T, tx *sql.Tx, fence func()) {
			if _, err := tx.Exec("SAVEPOINT before"); err != nil {
				t.Fatal(err)
			}
			fence()
			_, _ = tx.Exec("ROLLBACK TO before")
		},
	}
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		stale, _ := overtaken(t, driver, dsn, db)
		released := mustLock(t, session(t, driver, dsn), sqllock.ID(2))
		unlock(t, released)
		for name, way := range ways {
			for _, lock := range []*sqllock.Lock{stale, released} {
				tx := transaction(t, db)
				way(t, tx, func() {
					if err := sqllock.Fence(t.Context(), tx, lock); err == nil {
						t.Errorf("%s: the fence returned no error", name)
					}
				})
				_, err := tx.Exec("INSERT INTO work VALUES ($1)", name)
				if commit := tx.Commit(); err == nil || commit == nil || written(t, db, name) {
					t.Errorf("%s: write %v, commit %v; written %t", name, err, commit, written(t, db, name))
				}
			}
		}
	})
}

func TestFenceErrors(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		db := fenced(t, driver, dsn)
		s, memory := session(t, driver, dsn), sqllock.NewMemory()
		released := mustLock(t, s, sqllock.ID(1))
		unlock(t, released)
		lost := mustLock(t, memory, sqllock.ID(1))
		memory.Lose()
		reader, err := s.TryRLock(t.Context(), sqllock.ID(3))
		if err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		perTx := mustLock(t, sqllock.PerTx(db), sqllock.ID(2))
		defer unlock(t, perTx)
		drawn := mustLock(t, s, sqllock.ID(4))
		if err := fencedWork(t.Context(), t, db, drawn, "drawn"); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			ctx  context.Context
			lock *sqllock.Lock
			want error
			text string
		}{
			{"released", t.Context(), released, sqllock.ErrReleased, ""},
			{"lost", t.Context(), lost, sqllock.ErrLost, ""},
			{"no lock", t.Context(), nil, sqllock.ErrUnavailable, ""},
			{"ended context", ended, mustLock(t, s, sqllock.ID(5)), context.Canceled, ""},
			{"a reader's", t.Context(), reader, nil, "a reader's lock cannot be fenced"},
			{"PerTx", t.Context(), perTx, nil, "only the lock of a Session"},
			{"Memory", t.Context(), mustLock(t, memory, sqllock.ID(3)), nil, "only the lock of a Session"},
		} {
			token, tokenErr := tt.lock.Token(tt.ctx)
			if token != "" {
				t.Errorf("%s: a token", tt.name)
			}
			for what, err := range map[string]error{"Fence": fencedWork(tt.ctx, t, db, tt.lock, tt.name), "Token": tokenErr} {
				if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || errors.Is(err, sqllock.ErrFenced) {
					t.Errorf("%s, %s: %v, want %v %s", what, tt.name, err, tt.want, tt.text)
				}
			}
			if written(t, db, tt.name) {
				t.Errorf("%s: the work is in the database", tt.name)
			}
		}
		if err := fencedWork(ended, t, db, drawn, "ended"); !errors.Is(err, context.Canceled) || written(t, db, "ended") {
			t.Errorf("ended context, a token: %v", err)
		}
		execute(t, db, "DROP TABLE latchkey_fence")
		err = fencedWork(t.Context(), t, db, drawn, "no table")
		if err == nil || !strings.Contains(err.Error(), "FenceSchema") || stateOf(err) != "42P01" {
			t.Errorf("without the table: %v, want one that names FenceSchema, with SQLSTATE 42P01", err)
		}
		if err := drawn.Err(); err != nil {
			t.Errorf("a fence that failed in the caller's transaction ended the lock: %v", err)
		}
	})
}
