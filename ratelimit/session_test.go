package ratelimit_test

import (
	"errors"
	"fmt"
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

// A stack finds the last place of each of three levels in a few statements. It
// does not exclude the places of a level one by one.
func TestStackOfNearlyFullLevels(t *testing.T) {
	t.Parallel()
	const limit = 100
	dsn := pgtest.Database(t)
	others, s := dbtest.Session(t, "pgx", dsn), dbtest.Session(t, "pgx", dsn)
	var levels []ratelimit.Level
	for i := range 3 {
		ns := sqllock.Namespace(fmt.Sprintf("level %d", i))
		fill(t, ratelimit.AtMost(limit, others, ns), "ada", limit-1)
		levels = append(levels, level(ratelimit.AtMost(limit, s, ns), "ada"))
	}
	before := s.Stats().Exchanges
	locks, err := ratelimit.AcquireAll(t.Context(), levels...)
	if err != nil {
		t.Fatalf("AcquireAll: %v, want locks", err)
	}
	if n := s.Stats().Exchanges - before; n > 20 { // two, and heartbeats
		t.Errorf("AcquireAll took %d statements, want a few", n)
	}
	if err := locks.Unlock(); err != nil {
		t.Error(err)
	}
}
