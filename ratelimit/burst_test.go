package ratelimit_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Many callers at once of a limit that another instance has filled cost a few
// looks at the database. All are rejected as busy, and nothing of the Session is
// lost.
func TestBurst(t *testing.T) {
	t.Parallel()
	const limit, callers = 500, 4096
	dsn := pgtest.Database(t)
	there, here := dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "pgx", dsn)
	fill(t, ratelimit.AtMost(limit, there, "burst"), "ada", limit)
	keeper := dbtest.Lock(t, here, sqllock.ID(1))
	l := ratelimit.AtMost(limit, here, "burst")
	before := here.Stats()
	var (
		wg     sync.WaitGroup
		others atomic.Int64
		start  = make(chan struct{})
	)
	for range callers {
		wg.Go(func() {
			<-start
			lock, err := l.Acquire(t.Context(), "ada")
			if !errors.Is(err, ratelimit.ErrBusy) {
				others.Add(1)
				_ = lock.Unlock()
			}
		})
	}
	close(start)
	wg.Wait()
	if n := others.Load(); n > 0 {
		t.Errorf("%d of %d callers were not rejected as busy", n, callers)
	}
	if after := here.Stats(); after.Losses != before.Losses || keeper.Err() != nil {
		t.Errorf("%d connections were lost, and another lock has the error %v", after.Losses-before.Losses, keeper.Err())
	}
	lockertest.Eventually(t, "nothing is left", func() bool { return here.Stats().Held == 1 })
}
