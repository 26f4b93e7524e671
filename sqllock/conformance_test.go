package sqllock_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMemoryConforms(t *testing.T) { lockertest.Run(t, memoryFleet()) }

func memoryFleet() lockertest.Fleet {
	memory := sqllock.NewMemory()
	return lockertest.Fleet{New: func(*testing.T) sqllock.Locker { return memory }, InLine: sqllock.InLine}
}

// newSession opens a Session whose heartbeats come soon.
func newSession(t *testing.T, db *sql.DB) sqllock.Locker {
	return sessionOn(t, db, sqllock.WithHeartbeat(100*time.Millisecond))
}

func newConn(t *testing.T, db *sql.DB) sqllock.Locker    { return sqllock.OnConn(connection(t, db)) }
func newPerTx(_ *testing.T, db *sql.DB) sqllock.Locker   { return sqllock.PerTx(db) }
func newPerTxFn(_ *testing.T, db *sql.DB) sqllock.Locker { return perTxFunc(db) }

func TestSessionConforms(t *testing.T)   { conforms(t, newSession, lockertest.Run) }
func TestConnConforms(t *testing.T)      { conforms(t, newConn, lockertest.Run) }
func TestPerTxConforms(t *testing.T)     { conforms(t, newPerTx, lockertest.Run) }
func TestPerTxFuncConforms(t *testing.T) { conforms(t, newPerTxFn, lockertest.Run) }

func TestLongConforms(t *testing.T) {
	for name, newLocker := range map[string]func(*testing.T, *sql.DB) sqllock.Locker{"Session": newSession, "Conn": newConn, "PerTx": newPerTx, "PerTxFunc": newPerTxFn} {
		t.Run(name, func(t *testing.T) { conforms(t, newLocker, lockertest.RunLong) })
	}
	t.Run("Memory", func(t *testing.T) { lockertest.RunLong(t, memoryFleet()) })
}

// conforms runs a part of the conformance suite on lockers whose locks are in
// PostgreSQL.
func conforms(t *testing.T, newLocker func(*testing.T, *sql.DB) sqllock.Locker, run func(*testing.T, lockertest.Fleet)) {
	eachDriver(t, func(t *testing.T, driver, dsn string) {
		run(t, databaseFleet(t, driver, dsn, dsn, newLocker))
	})
}

// A PerTx works through PgBouncer in transaction mode.
func TestPgBouncerConforms(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	pooled := pooler(t, cluster, "transaction", 20)
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			lockertest.Run(t, databaseFleet(t, driver, pooled, cluster.DSN(""), newPerTx))
		})
	}
}

// databaseFleet makes a fleet of lockers on dsn. The locks that are left are
// counted through direct, which leads to the same database.
func databaseFleet(t *testing.T, driver, dsn, direct string, newLocker func(*testing.T, *sql.DB) sqllock.Locker) lockertest.Fleet {
	observer := open(t, driver, direct)
	return lockertest.Fleet{
		New:       func(t *testing.T) sqllock.Locker { return newLocker(t, open(t, driver, dsn)) },
		InLine:    sqllock.InLine,
		Leftovers: func(t *testing.T) int { return advisoryLocks(t, observer) },
	}
}
