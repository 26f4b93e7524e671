package ratelimit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// When a limit is raised to the highest one, each request for which there is a
// place is admitted.
func TestLimitIsRaisedToTheHighest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, locks := newPlan(2), sqllock.NewMemory()
		l := ratelimit.AtMost(4, locks, "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(time.Minute, 9))
		fill2(t, l, "ada", 2)
		third, fourth := acquire(t.Context(), l, "ada"), acquire(t.Context(), l, "ada")
		synctest.Wait()
		p.n.Store(4)
		for _, next := range []<-chan result{third, fourth} {
			if got := <-next; got.err != nil || got.took > 100*time.Millisecond {
				t.Errorf("got %v after %v, want a lock", got.err, got.took)
			} else {
				defer unlock(t, got.lock)
			}
		}
		mustBeBusy(t, ratelimit.AtMost(4, locks, "export"), "ada")
	})
}
