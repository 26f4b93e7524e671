package pgxlatchkey_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Session on a pool of pgx keeps one of its MaxConns, and needs two to open.
func TestSessionSharesPool(t *testing.T) {
	t.Parallel()
	for max, want := range map[int32]error{2: nil, 1: sqllock.ErrUnavailable} {
		pool := newPool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = max })
		db := stdlib.OpenDBFromPool(pool)
		t.Cleanup(func() { _ = db.Close() })
		s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(50*time.Second)) // keeps the bound of 0.9 s
		if !errors.Is(err, want) {
			t.Errorf("Open on a pool of %d: %v, want %v", max, err, want)
		}
		if s == nil {
			continue
		}
		lock := mustLock(t, s, sqllock.ID(1))
		if n := pool.Stat().AcquiredConns(); n != 1 {
			t.Errorf("the Session uses %d connections of the pool, want 1", n)
		}
		tx := begin(t, pool) // the other one
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
		unlock(t, lock)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
