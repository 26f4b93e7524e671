package metricstest

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// main is the series name of the Session main.
func main(name string) string { return name + `{session="main"}` }

// The lock table, and locks, waiters, connections, exchanges and the lease of a
// Session. Then it loses its connection.
func session(t *testing.T, start func(*testing.T) Subject) {
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		s := start(t)
		tx := dbtest.Transaction(t, dbtest.Open(t, driver, dsn))
		if _, err := tx.Exec("SELECT pg_advisory_xact_lock(i) FROM generate_series(1001, 1100) i"); err != nil { // of another client
			t.Fatal(err)
		}
		locks := open(t, s, "main", driver, dsn) // it looks at the lock table as it begins
		eventuallyIs(t, s, "the use of the lock table is known", func(f figures) bool {
			part := f[main("latchkey_session_lock_table_utilization_ratio")]
			return part*float64(locks.Stats().TableSize) >= 100 && part < 1
		})
		want(t, s, figures{main("latchkey_session_locks"): 0, main("latchkey_session_connections"): 1, main("latchkey_session_idle_closed"): 0})

		before := read(t, s)
		lock := dbtest.Lock(t, locks, sqllock.ID(1))
		want(t, s, figures{main("latchkey_session_locks"): 1})
		for _, name := range []string{"latchkey_session_exchange_duration_seconds_count", "latchkey_session_exchange_duration_seconds_sum", "latchkey_session_exchange_keys_sum"} {
			eventuallyIs(t, s, name+" grows", func(f figures) bool { return f[main(name)] > before[main(name)] }) // told after the caller
		}
		now := read(t, s) // a lease has five heartbeats
		if left, heartbeat := now[main("latchkey_session_lease_remaining_seconds")], now[main("latchkey_session_heartbeat_seconds")]; left <= 0 || left > 5*heartbeat {
			t.Errorf("%v s are left of a lease with a heartbeat each %v s", left, heartbeat)
		}

		waited := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, err := locks.Lock(ctx, sqllock.ID(1)); waited <- err }()
		eventually(t, s, main("latchkey_session_waiters"), 1)
		cancel()
		<-waited
		want(t, s, figures{main("latchkey_session_waiters"): 0})

		httptesting.Terminate(t, dbtest.Open(t, driver, dsn))
		<-lock.Context().Done()
		eventually(t, s, main("latchkey_session_locks_lost_total"), 1)
		if n := read(t, s).sum("latchkey_session_losses_total{"); n != 1 {
			t.Errorf("%v losses were counted, want 1", n)
		}
		eventually(t, s, main("latchkey_session_connections"), 1)
	})
}
