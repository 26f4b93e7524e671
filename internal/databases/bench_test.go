package databases

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// benchPairs has 64 callers acquire and release a key of their own each.
func benchPairs(b *testing.B, s *sqllock.Session) {
	b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
	var callers atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		key := sqllock.ID(callers.Add(1))
		for pb.Next() {
			lock, err := s.TryLock(context.Background(), key)
			if err == nil {
				err = lock.Unlock()
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
}

// A Session on SQLite.
func BenchmarkSQLite(b *testing.B) {
	dsn := "file:" + b.TempDir() + "/app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	benchPairs(b, session(b, open(b, "sqlite", dsn), sqllock.WithLease(time.Minute)))
}

// A Session on a lease table in PostgreSQL, whose commits wait for the disk,
// against one with advisory locks.
func BenchmarkLeaseTable(b *testing.B) {
	cluster := pgtest.New(b, pgtest.WithSettings(map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}))
	for name, opts := range map[string][]sqllock.Option{"table": {sqllock.WithLeaseTable()}, "advisory": nil} {
		b.Run(name, func(b *testing.B) {
			benchPairs(b, session(b, open(b, "pgx", inExecMode(cluster.DSN(""))), opts...))
		})
	}
}

// A Session on TiDB, against a statement for each row, on as many connections as
// callers. A rejection is compared with a round trip.
func BenchmarkTiDB(b *testing.B) {
	o := tidb(b)
	db := open(b, o.Driver, o.DSN)
	s := session(b, db, sqllock.WithLeaseTable())
	b.Run("latchkey", func(b *testing.B) { benchPairs(b, s) })
	b.Run("row", func(b *testing.B) {
		db.SetMaxIdleConns(64)
		execute(b, db, "CREATE TABLE IF NOT EXISTS rows_of_callers (k BIGINT NOT NULL PRIMARY KEY, s BIGINT NOT NULL)")
		b.SetParallelism(max(1, 64/runtime.GOMAXPROCS(0)))
		var callers atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			key := callers.Add(1)
			for pb.Next() {
				_, err := db.Exec(fmt.Sprintf("INSERT IGNORE INTO rows_of_callers VALUES (%d, 1)", key))
				if err == nil {
					_, err = db.Exec(fmt.Sprintf("DELETE FROM rows_of_callers WHERE k = %d AND s = 1", key))
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	})
	other := mustLock(b, session(b, open(b, o.Driver, o.DSN), sqllock.WithLeaseTable()), sqllock.ID(1))
	b.Run("rejection", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.TryLock(b.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				b.Fatal(err)
			}
		}
	})
	mustUnlock(b, other)
	b.Run("round trip", func(b *testing.B) {
		for b.Loop() {
			execute(b, db, "UPDATE latchkey_tokens SET epoch = epoch WHERE only_row = 1")
		}
	})
}
