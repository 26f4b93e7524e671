package lockui_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockui"
)

// The page shows each level of a stack under its namespace. A request that waits
// is in the line of the level that is full, and has no place on the others.
func TestLevelsOfAStack(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	locks := dbtest.Session(t, "pgx", dsn)
	wait := ratelimit.WithWait(time.Minute, 5)
	user := ratelimit.OneAtATime(locks, "user", wait)
	tenant, total := ratelimit.AtMost(3, locks, "tenant", wait), ratelimit.AtMost(9, locks, "total")
	server := serve(t, lockui.New(dbtest.Open(t, "pgx", dsn), lockui.WithLimiter(user), lockui.WithLimiter(tenant), lockui.WithLimiter(total)))
	acquire := func(ctx context.Context) (sqllock.Locks, error) {
		return ratelimit.AcquireAll(ctx, ratelimit.Level{Limiter: user, ID: "ada"},
			ratelimit.Level{Limiter: tenant, ID: "acme"}, ratelimit.Level{Limiter: total, ID: "all"})
	}
	first, err := acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		locks, err := acquire(t.Context())
		_ = locks.Unlock()
		waited <- err
	}()
	shows := func(what, want string) {
		t.Helper()
		lockertest.Eventually(t, what, func() bool {
			var seen struct {
				Limiters []struct {
					Namespace string            `json:"namespace"`
					Active    int               `json:"active"`
					Queued    int               `json:"queued"`
					Requests  map[string]uint64 `json:"requests"`
				} `json:"limiters"`
			}
			getJSON(t, server.URL+"/", &seen)
			got := ""
			for _, l := range seen.Limiters {
				got += fmt.Sprintf("%s %d/%d/%d ", l.Namespace, l.Active, l.Queued, l.Requests["admitted"])
			}
			return got == want
		})
	}
	shows("one request runs, one waits", "user 1/1/1 tenant 1/0/1 total 1/0/1 ")
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
	shows("both have ended", "user 0/0/2 tenant 0/0/2 total 0/0/2 ")
}
