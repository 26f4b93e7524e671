package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// EndProcess ends a silent process if nothing has changed since a look. It does
// not if any one thing has.
func TestEndProcessLooksAgain(t *testing.T) {
	tests := []struct {
		name          string
		then          string                    // what the process does after the look
		start, silent func(time.Time) time.Time // what else the caller has seen
		want          bool
	}{
		{name: "silent", want: true},
		{name: "silent for an unknown time", silent: func(time.Time) time.Time { return time.Time{} }, then: "SELECT 1", want: true},
		{name: "has been at work", then: "SELECT 1"},
		{name: "holds no lock", then: "SELECT pg_advisory_unlock_all()", silent: func(time.Time) time.Time { return time.Time{} }},
		{name: "silent at another time", silent: func(at time.Time) time.Time { return at.Add(-time.Microsecond) }},
		{name: "another process", start: func(at time.Time) time.Time { return at.Add(-time.Microsecond) }},
	}
	for _, driver := range pgtest.Drivers() {
		for _, tt := range tests {
			t.Run(driver+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				db := openPool(t, driver, pgtest.Database(t))
				conn, err := db.Conn(t.Context())
				must(t, err)
				defer conn.Close()
				execute(t, conn, "SELECT pg_advisory_lock(7, 8)")
				var pid int
				must(t, conn.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
				var start, silent time.Time
				eventually(t, "the process is idle", func() (idle bool) {
					must(t, db.QueryRow("SELECT state = 'idle', backend_start, state_change FROM pg_stat_activity WHERE pid = $1", pid).Scan(&idle, &start, &silent))
					return idle
				})
				if tt.start != nil {
					start = tt.start(start)
				}
				if tt.silent != nil {
					silent = tt.silent(silent)
				}
				if tt.then != "" {
					execute(t, conn, tt.then)
				}
				ended, err := EndProcess(context.Background(), db, pid, start, silent)
				if err != nil || ended != tt.want {
					t.Errorf("EndProcess: %v, %v, want %v", ended, err, tt.want)
				}
				if !tt.want && conn.PingContext(t.Context()) != nil {
					t.Error("the process was ended")
				}
			})
		}
	}
}
