package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// clients counts the connections to db's database other than the one that asks.
func clients(tb testing.TB, db *sql.DB) int {
	tb.Helper()
	return number(tb, db, `SELECT count(*) FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'`)
}

// An idle Session leaves no connection on the server, so that a serverless one
// can suspend. The pool's setting sees to the connection of the proof.
func TestIdleCloseLeavesNoConnection(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		pool, db := open(t, driver, dsn), open(t, driver, dsn)
		pool.SetConnMaxIdleTime(100 * time.Millisecond)
		db.SetMaxOpenConns(1)
		s, err := sqllock.Open(t.Context(), pool, sqllock.WithIdleClose(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		other := sqllock.Namespace("idle").Keyed([]byte("0123456789abcdef0123456789abcdef")).Key("a")
		for range 2 {
			lock := mustLock(t, s, sqllock.ID(1))
			secret := mustLock(t, s, other)
			if _, err := s.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of a held key: %v", err)
			}
			if got := s.Stats(); got.Connections != 1 || got.IdleClosed {
				t.Errorf("%d connections, idle closed %t with a lock", got.Connections, got.IdleClosed)
			}
			if _, err := lock.Token(t.Context()); err != nil {
				t.Errorf("Token: %v", err)
			}
			dbtest.Unlock(t, lock)
			dbtest.Unlock(t, secret)
			lockertest.Eventually(t, "no client is connected", func() bool { return clients(t, db) == 0 })
			if got := s.Stats(); got.Connections != 0 || !got.IdleClosed || got.Losses != 0 {
				t.Errorf("%d connections, idle closed %t, %d losses while idle", got.Connections, got.IdleClosed, got.Losses)
			}
			if n := advisoryLocks(t, db); n != 0 {
				t.Errorf("%d advisory locks are left", n)
			}
		}
	})
}

// Callers of two Sessions come when the connections are about to close, or have
// closed. Each gets its lock, and no key is granted twice.
func TestIdleCloseUnderCalls(t *testing.T) {
	t.Parallel()
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		var inside sync.Mutex
		var wg sync.WaitGroup
		for range 2 {
			s := session(t, driver, dsn, sqllock.WithIdleClose(time.Second))
			wg.Go(func() {
				for n := range 4 {
					lockertest.Eventually(t, "the connection is closed, or as good as", func() bool {
						left := s.Stats().LeaseRemaining // as it was at the last statement, less the time since
						return s.Stats().IdleClosed || n%2 == 1 && left < 7*time.Second+20*time.Millisecond
					})
					callAtOnce(t, s, &inside)
				}
				if got := s.Stats(); got.Losses != 0 || got.Failed != 0 {
					t.Errorf("%d losses, %d calls failed", got.Losses, got.Failed)
				}
			})
		}
		wg.Wait()
	})
}

// callAtOnce makes several calls for one key. inside is held by whoever has it.
func callAtOnce(t *testing.T, s *sqllock.Session, inside *sync.Mutex) {
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			lock, err := s.Lock(ctx, sqllock.ID(1))
			if err != nil {
				t.Errorf("Lock: %v", err)
				return
			}
			if !inside.TryLock() {
				t.Error("a key is granted twice")
			} else {
				runtime.Gosched()
				inside.Unlock()
			}
			dbtest.Unlock(t, lock)
		})
	}
	callers.Wait()
}

// The server is away when a call opens the connection. The call fails as after a
// loss, and the Session serves again once the server is back.
func TestIdleCloseThenServerStops(t *testing.T) {
	t.Parallel()
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), sqllock.WithIdleClose(time.Second))
		lockertest.Eventually(t, "the connection is closed", func() bool { return s.Stats().IdleClosed })
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("TryLock without a server: %v, want ErrUnavailable", err)
		}
		if got := s.Stats(); got.IdleClosed || got.Losses != 0 {
			t.Errorf("idle closed %t, %d losses without a server", got.IdleClosed, got.Losses)
		}
		if err := cluster.StartAgain(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		lock, err := s.Lock(ctx, sqllock.ID(1))
		if err != nil {
			t.Fatalf("Lock after the start: %v", err)
		}
		dbtest.Unlock(t, lock)
		lockertest.Eventually(t, "the connection is closed again", func() bool { return s.Stats().IdleClosed })
	})
}
