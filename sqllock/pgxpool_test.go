package sqllock_test

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// driverPool opens a *sql.DB on a pool of the driver's own. Closing one of its
// connections puts it back into that pool, still open. wrap may be nil.
func driverPool(t *testing.T, dsn string, wrap func(driver.Conn) driver.Conn) *sql.DB {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	db := sql.OpenDB(wrapper{stdlib.GetPoolConnector(pool), wrap})
	db.SetMaxIdleConns(0) // as stdlib.OpenDBFromPool does
	t.Cleanup(func() { _ = db.Close() })
	execute(t, db, "CREATE TABLE orders (id int)")
	return db
}

// leavesNothing checks that no server process, lock or setting of a Session
// remains in db, and that its other users go on as before.
func leavesNothing(t *testing.T, db *sql.DB, dsn string) {
	t.Helper()
	for range 40 {
		if _, err := db.Exec("SELECT FROM orders"); err != nil {
			t.Fatalf("a query of another user of the pool: %v", err)
		}
	}
	observer := open(t, "pgx", dsn)
	lockertest.Eventually(t, "the connection and its locks are gone", func() bool {
		return sessions(t, observer) == 0 && advisoryLocks(t, observer) == 0
	})
}

// tryTx acquires key in a transaction of db, and reports whether it was free.
func tryTx(t *testing.T, db *sql.DB, key sqllock.Key) (bool, error) {
	t.Helper()
	tx := transaction(t, db)
	defer func() { _ = tx.Rollback() }()
	err := sqllock.TryTx(t.Context(), tx, key)
	if errors.Is(err, sqllock.ErrHeld) {
		return false, nil
	}
	return err == nil, err
}

// What ends leaves the pool as it was: a Session that is closed, an Open that
// fails after it has set the connection up, and a ConnLocker in doubt.
func TestEndOnDriverPool(t *testing.T) {
	t.Parallel()
	closed := func(t *testing.T, db *sql.DB) {
		s := sessionOn(t, db, sqllock.WithLease(10*time.Minute))
		take(t, s, 0, 3)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, tt := range map[string]struct {
		wrap func(driver.Conn) driver.Conn
		end  func(t *testing.T, db *sql.DB)
	}{
		"closed":            {nil, closed},
		"closed in wrapper": {wrapping, closed},
		"closed, hidden":    {hides, closed},
		"failed Open": {nil, func(t *testing.T, db *sql.DB) {
			for range 5 {
				if s, err := sqllock.Open(t.Context(), db, sqllock.WithLease(10*time.Minute), sqllock.WithRegistry("")); err == nil {
					_ = s.Close()
					t.Fatal("Open without the registry's tables: no error")
				}
			}
		}},
		"conn in doubt": {nil, func(t *testing.T, db *sql.DB) {
			conn := connection(t, db)
			locks := sqllock.OnConn(conn)
			mustLock(t, locks, sqllock.ID(1))
			lock := mustLock(t, locks, sqllock.ID(2))
			execute(t, conn, "SELECT pg_advisory_unlock(2)")
			if err := lock.Unlock(); !errors.Is(err, sqllock.ErrLost) { // the connection is in doubt now
				t.Errorf("Unlock of what is not held: %v, want ErrLost", err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dsn := pgtest.Database(t)
			db := driverPool(t, dsn, tt.wrap)
			tt.end(t, db)
			leavesNothing(t, db, dsn)
		})
	}
}
