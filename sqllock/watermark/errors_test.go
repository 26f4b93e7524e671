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
	"github.com/latchkey-go/latchkey/internal/pgtest"
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

func TestAdvanceErrors(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		done := dbtest.Transaction(t, db)
		if err := done.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := watermark.Advance(t.Context(), done, sqllock.ID(1), 1); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("on a transaction that is done: %v, want sql.ErrTxDone", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := markedWork(ended, t, db, sqllock.ID(1), 1, "ended"); !errors.Is(err, context.Canceled) {
			t.Errorf("with an ended context: %v, want context.Canceled", err)
		}
		if _, ok, err := watermark.Get(ended, db, sqllock.ID(1)); ok || !errors.Is(err, context.Canceled) {
			t.Errorf("Get with an ended context: %t, %v, want context.Canceled", ok, err)
		}
		if _, ok, err := watermark.Get(t.Context(), done, sqllock.ID(1)); ok || !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Get in a transaction that is done: %t, %v, want sql.ErrTxDone", ok, err)
		}
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 1, "then"); err != nil {
			t.Errorf("the mark has moved without a commit: %v", err)
		}
	})
}

// If the caller's context ends while Advance waits for another transaction, the
// error is that of the context.
func TestAdvanceContextEnds(t *testing.T) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		db := marked(t, driver, dsn)
		first := dbtest.Transaction(t, db)
		if err := watermark.Advance(t.Context(), first, sqllock.ID(1), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		passed := make(chan error, 1)
		go func() { passed <- markedWork(ctx, t, db, sqllock.ID(1), 1, "second") }()
		lockertest.Eventually(t, "the second waits for the first", func() bool { return dbtest.WaitForLocks(t, db) == 1 })
		cancel()
		if err := <-passed; !errors.Is(err, context.Canceled) {
			t.Errorf("Advance: %v, want context.Canceled", err)
		}
	})
}

// If the database is away the error is ErrUnavailable, without an address.
func TestGetDatabaseAway(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := dbtest.Open(t, driver, cluster.DSN(""))
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
		_, ok, err := watermark.Get(t.Context(), db, sqllock.ID(1))
		if ok || !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("Get: %t, %v, want ErrUnavailable", ok, err)
		}
		dbtest.TellsNothing(t, err, cluster.DSN(""))
	})
}

// A crash of the server undoes what was not committed, the watermark and the
// work.
func TestAdvanceAcrossCrash(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		db := marked(t, driver, cluster.DSN(""))
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 1, "committed"); err != nil {
			t.Fatal(err)
		}
		tx := dbtest.Transaction(t, db)
		if err := watermark.Advance(t.Context(), tx, sqllock.ID(1), 2); err != nil {
			t.Fatal(err)
		}
		if err := cluster.Restart(true); err != nil {
			t.Fatal(err)
		}
		if err := watermark.Advance(t.Context(), tx, sqllock.ID(1), 3); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("in the transaction that the crash ended: %v, want ErrUnavailable", err)
		}
		lockertest.Eventually(t, "the pool has noticed", func() bool { return db.Ping() == nil })
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 1, "again"); err != watermark.ErrPassed {
			t.Errorf("the mark that was committed: %v, want ErrPassed", err)
		}
		if err := markedWork(t.Context(), t, db, sqllock.ID(1), 2, "tried again"); err != nil {
			t.Errorf("the mark that was not: %v", err)
		}
	}, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
}
