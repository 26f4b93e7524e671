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

// openOn opens a Session on a pool of so many connections.
func openOn(t *testing.T, connections int32, opts ...sqllock.Option) (*sqllock.Session, *pgxpool.Pool, error) {
	t.Helper()
	pool := newPool(t, pgtest.Database(t), func(c *pgxpool.Config) { c.MaxConns = connections })
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	s, err := sqllock.Open(t.Context(), db, opts...)
	return s, pool, err
}

// A Session on a pool of pgx keeps one of its MaxConns.
func TestSessionSharesPool(t *testing.T) {
	t.Parallel()
	s, pool, err := openOn(t, 2)
	if err != nil {
		t.Fatal(err)
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

// It needs two connections to open, and gives up after 5 seconds.
func TestLongSessionOnPoolOfOne(t *testing.T) {
	t.Parallel()
	short := sqllock.WithLease(50 * time.Second) // keeps the short bounds
	if _, _, err := openOn(t, 1, short); !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("Open: %v, want ErrUnavailable", err)
	}
}
