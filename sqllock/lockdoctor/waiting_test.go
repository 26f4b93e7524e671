package lockdoctor_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// The marks of a Session that waits for a key elsewhere are no locks that it does
// not know of, and no caller's.
func TestHealthyWhileWaiting(t *testing.T) {
	t.Parallel()
	dsn := fit("pgx", pgtest.Database(t))
	holder, waiter := dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "pgx", dsn)
	lock := dbtest.Lock(t, holder, sqllock.ID(1))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = waiter.Lock(ctx, sqllock.ID(1))
	}()
	defer func() { cancel(); <-ended; _ = lock.Unlock() }()
	lockertest.Eventually(t, "marks", func() bool { return waiter.Connections()[0].SecretChecks == 2 })
	db := dbtest.Open(t, "pgx", dsn)
	r := examine(t, db, lockdoctor.WithSession(waiter))
	for _, c := range r.Checks {
		if c.State != lockdoctor.OK && c.State != lockdoctor.Skipped {
			t.Errorf("%s: %v: %s", c.Name, c.State, c.Reason)
		}
	}
	s, err := lockwatch.Inspect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	callers := 0
	for _, h := range s.Holders {
		if !h.SecretCheck {
			callers++
		}
	}
	if callers != 1 {
		t.Errorf("lockwatch shows %d locks of callers, want 1", callers)
	}
}
