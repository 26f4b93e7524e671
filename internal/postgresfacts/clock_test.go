package postgresfacts

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// A step of the server's clock frees the locks of a silent session sooner by the
// length of the step at most. So a client that gives up a margin before the lease
// ends is safe from smaller steps. After a step back they are kept longer.
func TestLongClockStep(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	cluster := pgtest.New(t, pgtest.WithClock())
	db := open(t, "pgx", cluster.DSN(""))
	for _, step := range []time.Duration{lease / 10, -lease} {
		holder := connection(t, open(t, "pgx", cluster.DSN("")))
		sent := time.Now()
		executeOn(t, holder, "SELECT pg_advisory_lock(1) FROM set_config('idle_session_timeout', '2s', false)")
		if err := cluster.StepClock(step); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the lock is free", func() bool {
			return number(t, db, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
		})
		if took, least := time.Since(sent), lease-step; took < least {
			t.Errorf("after a step of %v the lock was free after %v, want at least %v", step, took, least)
		}
	}
}
