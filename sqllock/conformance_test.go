package sqllock_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	memory := sqllock.NewMemory()
	lockertest.Run(t, lockertest.Fleet{
		New:    func(*testing.T) sqllock.Locker { return memory },
		InLine: sqllock.InLine,
	})
}

// databaseFleet makes fleets whose locks are in PostgreSQL.
func databaseFleet(t *testing.T, driver, dsn string, newLocker func(t *testing.T, db *sql.DB) sqllock.Locker) lockertest.Fleet {
	observer := open(t, driver, dsn)
	return lockertest.Fleet{
		New:       func(t *testing.T) sqllock.Locker { return newLocker(t, open(t, driver, dsn)) },
		InLine:    sqllock.InLine,
		Leftovers: func(t *testing.T) int { return advisoryLocks(t, observer) },
	}
}

func TestSessionConforms(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		lockertest.Run(t, databaseFleet(t, driver, dsn, func(t *testing.T, db *sql.DB) sqllock.Locker {
			s, err := sqllock.Open(context.Background(), db)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}))
	})
}

func TestConnConforms(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		lockertest.Run(t, databaseFleet(t, driver, dsn, func(t *testing.T, db *sql.DB) sqllock.Locker {
			conn, err := db.Conn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			return sqllock.OnConn(conn)
		}))
	})
}

func TestPerTxConforms(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		lockertest.Run(t, databaseFleet(t, driver, dsn, func(_ *testing.T, db *sql.DB) sqllock.Locker {
			return sqllock.PerTx(db)
		}))
	})
}

func TestPerTxFuncConforms(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		lockertest.Run(t, databaseFleet(t, driver, dsn, func(_ *testing.T, db *sql.DB) sqllock.Locker {
			return perTxFunc(db)
		}))
	})
}
