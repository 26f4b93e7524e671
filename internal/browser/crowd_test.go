package browser_test

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// A crowd is a site with something to show on every view.
type crowd struct {
	*site
	one, two *client // each holds a key and waits for that of the other
}

// newCrowd starts a site on which two clients are in a deadlock, a third program
// waits for a key, and a request holds the place of a limiter.
func newCrowd(t *testing.T, opts ...lockui.Option) *crowd {
	t.Helper()
	dsn := pgtest.Database(t)
	c := &crowd{site: serve(t, dsn, nil, opts...)}
	const heartbeat = 200 * time.Millisecond
	c.one = startClient(t, clientOrders{Driver: "pgx", DSN: dsn, Holder: "export-7d9f-1", Heartbeat: heartbeat})
	c.two = startClient(t, clientOrders{Driver: "postgres", DSN: dsn, Holder: "export-7d9f-2", Heartbeat: heartbeat})
	c.one.hold(1)
	c.one.name(1, "monthly report")
	c.one.hold(3)
	c.two.hold(2)
	c.one.wait(2, 1)
	c.two.wait(1, 2)

	lease, err := c.limiter.Acquire(t.Context(), "user-9")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lease.Unlock() }) // an operator may have ended its session

	other := dbtest.Open(t, "pgx", dsn)
	conn, err := other.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", exportKey(3).Int64())
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		_ = conn.Close()
	})
	lockertest.Eventually(t, "the crowd is in the database", func() bool {
		seen := c.snapshot()
		return len(seen.Waiters) == 3 && len(seen.Cycles()) == 1 && named(seen, "monthly report")
	})
	return c
}

// named reports whether a lock has a name.
func named(seen *lockwatch.Snapshot, name string) bool {
	for _, h := range seen.Holders {
		if h.Registration != nil && h.Registration.Name == name {
			return true
		}
	}
	return false
}
