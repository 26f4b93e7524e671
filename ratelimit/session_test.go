package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Two instances over one PostgreSQL share a limit, and one waits for the other.
func TestAcrossSessions(t *testing.T) {
	t.Parallel()
	dbtest.EachDriver(t, func(t *testing.T, driver, dsn string) {
		one := ratelimit.AtMost(2, dbtest.Session(t, driver, dsn), "export")
		two := ratelimit.AtMost(2, dbtest.Session(t, driver, dsn), "export")
		patient := ratelimit.AtMost(2, dbtest.Session(t, driver, dsn), "export", ratelimit.WithWait(time.Minute, 1))

		first, second := must(t, one, "ada"), must(t, two, "ada")
		for _, l := range []*ratelimit.Limiter{one, two} {
			if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
				t.Errorf("third: %v, want ErrBusy", err)
			}
		}
		third := make(chan error)
		go func() {
			lock, err := patient.Acquire(t.Context(), "ada")
			_ = lock.Unlock()
			third <- err
		}()
		lockertest.Eventually(t, "the third waits", func() bool { return patient.Stats().Queued == 1 })
		unlock(t, second)
		if err := <-third; err != nil {
			t.Errorf("waiting: %v, want a lock", err)
		}
		unlock(t, first)
	})
}

// A request that waits is admitted when its limit is raised to the highest one
// that any id may have. The holders may be in another instance.
func TestLimitRaisedToTheHighest(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	here, elsewhere := dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "pgx", dsn)
	for _, holder := range []*sqllock.Session{here, elsewhere} {
		p := newPlan(3)
		held := fill(t, ratelimit.AtMost(3, holder, "export"), "ada", 3)
		l := ratelimit.AtMost(5, here, "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(30*time.Second, 1))
		next := make(chan result, 1)
		go func() {
			lock, err := l.Acquire(t.Context(), "ada")
			next <- result{lock: lock, err: err}
		}()
		lockertest.Eventually(t, "the request waits", func() bool { return l.Stats().Queued == 1 })
		p.n.Store(5)
		end(t, <-next)
		for _, lock := range held {
			unlock(t, lock)
		}
	}
}
