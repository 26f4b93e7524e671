package pages

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// pgxTx is a pgx.Tx as package sqllock takes transactions.
type pgxTx struct {
	ctx context.Context
	tx  pgx.Tx
}

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

func (t pgxTx) Commit() error   { return t.tx.Commit(t.ctx) }
func (t pgxTx) Rollback() error { return t.tx.Rollback(t.ctx) }

// The adapter in docs/production.md is the one tested here.
func TestProductionPageHasPgxTx(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	_, adapter, _ := strings.Cut(read("production_page_test.go"), "// pgxTx is")
	adapter, _, ok := strings.Cut(adapter, "\n// The adapter in")
	if !ok || !strings.Contains(read("../../docs/production.md"), adapter) {
		t.Error("the page has another adapter")
	}
}

// A pgx.Tx acquires locks and is fenced like a *sql.Tx.
func TestPgxTx(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	dsn := pgtest.Database(t)
	db := dbtest.Open(t, "pgx", dsn)
	for _, ddl := range sqllock.FenceSchema(sqllock.PostgreSQL) {
		dbtest.Execute(t, db, ddl)
	}
	s := dbtest.Session(t, "pgx", dsn)
	begin := func() pgxTx {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return pgxTx{ctx, tx}
	}

	key := sqllock.ID(1)
	a, b := begin(), begin()
	if err := sqllock.TryTx(ctx, a, key); err != nil {
		t.Fatalf("TryTx: %v", err)
	}
	if err := sqllock.TryTx(ctx, b, key); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryTx of a key that another transaction holds: %v", err)
	}
	if err := sqllock.LockTx(ctx, b, key, time.Millisecond); !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("LockTx of a key that another transaction holds: %v", err)
	}
	if err := a.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := sqllock.TryTx(ctx, b, key); err != nil {
		t.Errorf("TryTx after the other's commit: %v", err)
	}

	lock := dbtest.Lock(t, s, sqllock.ID(2))
	fenced := begin()
	if err := sqllock.Fence(ctx, fenced, lock); err != nil {
		t.Fatalf("Fence: %v", err)
	}
	if err := fenced.Commit(); err != nil {
		t.Fatal(err)
	}
	dbtest.Execute(t, db, "UPDATE latchkey_fence SET lsn = lsn + 1") // as if a later holder had passed the fence
	stale := begin()
	if err := sqllock.Fence(ctx, stale, lock); !errors.Is(err, sqllock.ErrFenced) {
		t.Errorf("Fence of a stale lock: %v", err)
	}
	if err := stale.Commit(); err == nil {
		t.Error("a rejected transaction was committed")
	}
}
