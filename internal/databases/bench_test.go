package databases

import (
	"context"
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
