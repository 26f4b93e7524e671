package databases

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The benchmarks here compare two ways side by side, in alternating rounds.
// They report the median of each and of their ratio. Run them with -benchtime
// 1x.

const (
	benchCallers = 64
	benchRounds  = 5
	benchRound   = time.Second
)

// A way acquires and releases a caller's key once.
type way func(ctx context.Context, caller int) error

// sideBySide reports how many pairs per second each way does, and the rate of
// the first over the rate of each other.
func sideBySide(b *testing.B, names []string, ways []way) {
	b.Helper()
	rates := make([][]float64, len(ways))
	for range benchRounds {
		for i, w := range ways {
			rates[i] = append(rates[i], rate(b, w))
		}
	}
	b.ReportMetric(0, "ns/op") // ns/op means nothing here
	for i, name := range names {
		b.ReportMetric(median(rates[i]), name+"-pairs/s")
		if i > 0 {
			ratios := make([]float64, benchRounds)
			for r := range ratios {
				ratios[r] = rates[0][r] / rates[i][r]
			}
			b.ReportMetric(median(ratios), names[0]+"/"+name)
		}
	}
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func rate(b *testing.B, w way) float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), benchRound)
	defer cancel()
	var pairs atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for caller := range benchCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := w(context.Background(), caller); err != nil {
					b.Errorf("caller %d: %v", caller, err)
					return
				}
				pairs.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(pairs.Load()) / time.Since(began).Seconds()
}

func bySession(s *sqllock.Session) way {
	return func(ctx context.Context, caller int) error {
		lock, err := s.TryLock(ctx, sqllock.ID(int64(caller)))
		if err != nil {
			return err
		}
		return lock.Unlock()
	}
}

// byRow inserts a row in one transaction and deletes it in another, as tables
// of locks are commonly used.
func byRow(db *sql.DB, begin string) way {
	do := func(ctx context.Context, statement string, args ...any) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.ExecContext(ctx, begin); err != nil {
			return err
		}
		_, err = conn.ExecContext(ctx, statement, args...)
		_, commitErr := conn.ExecContext(ctx, "COMMIT")
		return errors.Join(err, commitErr)
	}
	return func(ctx context.Context, caller int) error {
		if err := do(ctx, "INSERT INTO row_locks (id) VALUES (?) ON CONFLICT DO NOTHING", caller); err != nil {
			return err
		}
		return do(ctx, "DELETE FROM row_locks WHERE id = ?", caller)
	}
}

// A Session on SQLite against a table of locks with a transaction for each lock
// and each release. Both use the same file with the same settings. The table is
// used through one connection and through eight.
func BenchmarkSQLite(b *testing.B) {
	dsn := "file:" + b.TempDir() + "/app.db?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	s := session(b, open(b, "sqlite", dsn), sqllock.WithLease(time.Minute))
	one, eight := open(b, "sqlite", dsn), open(b, "sqlite", dsn)
	one.SetMaxOpenConns(1)
	eight.SetMaxOpenConns(8)
	execute(b, one, "CREATE TABLE row_locks (id INTEGER PRIMARY KEY)")
	sideBySide(b, []string{"session", "row-1conn", "row-8conns"}, []way{bySession(s), byRow(one, "BEGIN IMMEDIATE"), byRow(eight, "BEGIN IMMEDIATE")})
}

// A Session on a lease table in PostgreSQL, whose commits wait for the disk,
// against two others. One has tables that a crash of the server would empty: no
// service must use those, but they show the price of the commits. The other has
// advisory locks.
func BenchmarkLeaseTable(b *testing.B) {
	cluster := pgtest.New(b, pgtest.WithSettings(map[string]string{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}))
	database := func() string {
		dsn, err := cluster.CreateDatabase(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		return inExecMode(dsn)
	}
	logged, unlogged := database(), database()
	fast := open(b, "pgx", unlogged)
	for _, statement := range sqllock.Schema(sqllock.PostgreSQL) {
		execute(b, fast, strings.Replace(statement, "CREATE TABLE", "CREATE UNLOGGED TABLE", 1))
	}
	sideBySide(b, []string{"logged", "unlogged", "advisory"}, []way{
		bySession(session(b, open(b, "pgx", logged), sqllock.WithLeaseTable())),
		bySession(session(b, fast, sqllock.WithLeaseTable())),
		bySession(session(b, open(b, "pgx", logged))),
	})
}
