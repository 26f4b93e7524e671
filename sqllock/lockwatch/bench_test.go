package lockwatch_test

import (
	"fmt"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

const many = 10_000

// BenchmarkInspect looks at 10,000 locks: advisory locks, the same with heartbeats
// and callers that wait, and leases. The page asks for it once a second.
func BenchmarkInspect(b *testing.B) {
	cluster := pgtest.New(b, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "256"}))
	for _, tt := range []struct {
		name       string
		statements []string
	}{
		{"advisory", []string{hold}},
		{"registered", []string{hold, register, waitFor}},
		{"leases", []string{
			`INSERT INTO latchkey_sessions SELECT i, now() + interval '1 hour', 1, 'host/' || i FROM generate_series(1, 10) i`,
			fmt.Sprintf(`INSERT INTO latchkey_locks SELECT 0, i * 7919, 1 + i %% 10, now() FROM generate_series(1, %d) i`, many),
		}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			name := "bench_" + tt.name
			dbtest.Execute(b, dbtest.Open(b, "pgx", cluster.DSN("")), "CREATE DATABASE "+name)
			db := dbtest.Open(b, "pgx", cluster.DSN(name))
			dbtest.Create(b, db, lockwatch.Schema(sqllock.PostgreSQL))
			dbtest.Create(b, db, sqllock.Schema(sqllock.PostgreSQL))
			conn := dbtest.Conn(b, db)
			for _, statement := range tt.statements {
				dbtest.ExecuteOn(b, conn, statement)
			}
			for b.Loop() {
				if n := len(inspect(b, db).Holders); n != many {
					b.Fatalf("%d locks, want %d", n, many)
				}
			}
		})
	}
}

var (
	hold     = fmt.Sprintf(`SELECT count(pg_advisory_lock(i * 7919)) FROM generate_series(1, %d) i`, many)
	register = fmt.Sprintf(`INSERT INTO latchkey_heartbeats SELECT 5, pid, backend_start, 0, i * 7919, 'export', NULL, 'host/1', now(), now() + interval '1 hour', now(), false
		FROM pg_stat_activity, generate_series(1, %d) i WHERE pid = pg_backend_pid()`, many)

	// waitFor: half of the callers wait for the lock of the next one, and others
	// wait that hold nothing known.
	waitFor = fmt.Sprintf(`INSERT INTO latchkey_waits SELECT 5, 0, (i + 1) * 7919, CASE WHEN i %% 4 = 0 THEN -1 ELSE 0 END, CASE WHEN i %% 4 = 0 THEN 0 ELSE i * 7919 END, 1, now(), now(), now() + interval '1 hour'
		FROM generate_series(1, %d / 2) i`, many)
)
