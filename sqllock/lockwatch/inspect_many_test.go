package lockwatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// Inspect joins 20,000 locks with their registrations by hash, which takes a
// second. A nested loop takes a minute. The planner chooses when the driver
// prepares the statement, and the table is still empty then.
func TestInspectManyLocks(t *testing.T) {
	t.Parallel()
	const n = 20000
	dsn := pgtest.Database(t)
	db := withRegistry(t, "pgx", dsn)
	db.SetMaxOpenConns(1)
	inspect(t, db)
	inspect(t, db) // on the same connection
	holder, err := dbtest.Open(t, "pgx", dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	for _, statement := range []string{
		"SELECT pg_advisory_lock(i) FROM generate_series(1, $1::bigint) AS i",
		`INSERT INTO latchkey_heartbeats (process, pid, backend_start, key_space, key_id, namespace, holder, acquired, heartbeat, expires)
			SELECT 1, pid, backend_start, 0, i, 'export', 'web-1', now(), now(), now() + interval '1 hour'
			FROM generate_series(1, $1::bigint) AS i, pg_stat_get_activity(pg_backend_pid())`,
	} {
		if _, err := holder.ExecContext(t.Context(), statement, n); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen, err := lockwatch.Inspect(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	registered := 0
	for _, h := range seen.Holders {
		if h.Registration != nil {
			registered++
		}
	}
	if registered != n {
		t.Errorf("%d locks are registered, want %d", registered, n)
	}
}
