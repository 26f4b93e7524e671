package ratelimit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
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
