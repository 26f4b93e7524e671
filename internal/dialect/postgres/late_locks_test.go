package postgres

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// lateLock takes a lock on a connection of its own and writes a late row for it
// into the table beats. alive reports whether its server process lives.
func lateLock(t *testing.T, db *sql.DB) (l LateLock, alive func() bool) {
	t.Helper()
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	l.Key = dialect.Key{Space: dialect.TwoInts, ID: 7<<32 | 8}
	err = conn.QueryRowContext(ctx, `SELECT pid, backend_start FROM pg_stat_activity, pg_advisory_lock(7, 8) WHERE pid = pg_backend_pid()`).Scan(&l.PID, &l.Start)
	must(t, err)
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS beats (pid int, backend_start timestamptz, key_space smallint, key_id bigint,
		shared boolean, heartbeat timestamptz, expires timestamptz)`)
	if err == nil {
		_, err = db.ExecContext(ctx, `INSERT INTO beats VALUES ($1, $2, 1, $3, false, now() - interval '40 seconds', now() - interval '39.998 seconds')`, l.PID, l.Start, l.Key.ID)
	}
	must(t, err)
	return l, func() bool { return conn.PingContext(ctx) == nil }
}

// awaitSilence waits until a process has been idle for longer than half the
// lease of a row.
func awaitSilence(t *testing.T, db *sql.DB, pid int) {
	t.Helper()
	const query = "SELECT state = 'idle' AND state_change < clock_timestamp() - interval '5 milliseconds' FROM pg_stat_activity WHERE pid = $1"
	eventually(t, "the process is idle", func() (silent bool) {
		must(t, db.QueryRow(query, pid).Scan(&silent))
		return silent
	})
}

var beats = Registry{Heartbeats: RegistryTable{Name: "beats", Readable: true}}

// Terminate ends the process of a late lock if nothing has changed. It does not
// if any one thing has.
func TestTerminateLooksAgain(t *testing.T) {
	tests := []struct {
		name   string
		change string // in the database
		look   func(l *LateLock)
		want   bool
	}{
		{name: "late", want: true},
		{name: "late, beside an operator that fits better", want: true, change: `CREATE FUNCTION better(interval, int) RETURNS interval LANGUAGE plpgsql
			AS 'BEGIN RAISE EXCEPTION ''better''; END'; CREATE OPERATOR / (LEFTARG = interval, RIGHTARG = int, FUNCTION = better)`},
		{name: "late by a given age", look: func(l *LateLock) { l.Late = 2 * time.Millisecond }, want: true},
		{name: "not so late", look: func(l *LateLock) { l.Late = time.Minute }},
		{name: "not late", change: "UPDATE beats SET heartbeat = now() - interval '20 seconds', expires = now() + interval '40 seconds'"},
		{name: "late, but the process is busy", change: "UPDATE beats SET expires = heartbeat + interval '60 seconds'"},
		{name: "no row", change: "DELETE FROM beats"},
		{name: "a row of another lock", change: "UPDATE beats SET key_id = 1"},
		{name: "a row of the other key space", change: "UPDATE beats SET key_space = 0"},
		{name: "a row of a shared lock", change: "UPDATE beats SET shared = true"},
		{name: "a row of another process", change: "UPDATE beats SET backend_start = backend_start - interval '1 microsecond'"},
		{
			// The row is of the first process. A second process has its PID and its
			// lock.
			name: "another process", change: "UPDATE beats SET backend_start = backend_start - interval '1 microsecond'",
			look: func(l *LateLock) { l.Start = l.Start.Add(-time.Microsecond) },
		},
		{
			name: "the lock is not held", change: "UPDATE beats SET key_id = 99",
			look: func(l *LateLock) { l.Key.ID = 99 },
		},
		{
			name: "the lock is not shared", change: "UPDATE beats SET shared = true",
			look: func(l *LateLock) { l.Shared = true },
		},
	}
	for _, driver := range pgtest.Drivers() {
		for _, tt := range tests {
			t.Run(driver+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				db := openPool(t, driver, pgtest.Database(t))
				l, alive := lateLock(t, db)
				if tt.look != nil {
					tt.look(&l)
				}
				if tt.change != "" {
					execute(t, db, tt.change)
				}
				awaitSilence(t, db, l.PID)
				ended, err := beats.Terminate(context.Background(), db, l)
				if err != nil || ended != tt.want {
					t.Errorf("Terminate: %v, %v, want %v", ended, err, tt.want)
				}
				if !tt.want && !alive() {
					t.Error("the process was ended")
				}
			})
		}
	}
}
