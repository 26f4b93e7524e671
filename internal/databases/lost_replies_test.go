package databases

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Replies of acquires, releases and renewals get lost. No key is granted twice,
// and none stays locked without a holder, while the sessions live.
func TestLongLostReplies(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		var losing atomic.Bool
		var lost atomic.Int64
		lossy := func(_ string, carryOut func() error) error {
			err := carryOut()
			if losing.Load() && rand.IntN(20) == 0 { //nolint:gosec // a test's
				lost.Add(1)
				return errBroken
			}
			return err
		}
		var sessions []sqllock.Locker
		for range 2 {
			sessions = append(sessions, session(t, intercepted(t, o, lossy), append(o.Options(), sqllock.WithLease(2*time.Second))...))
		}
		tr := startTraffic(t, false, sessions...)
		losing.Store(true)
		for n := range int64(20) { // one by one, since a session may pause after each
			lockertest.Eventually(t, "another reply is lost", func() bool { return lost.Load() > n })
		}
		losing.Store(false)
		tr.flows("after the losses")
		tr.end()
		t.Logf("%d replies lost, %d losses", lost.Load(), tr.losses())
		for n := range 3 {
			for _, s := range sessions {
				awaitGrant(t, "each key is free to every session", s, sqllock.ID(int64(100+n)))
			}
		}
		observer := open(t, o.Driver, o.DSN)
		lockertest.Eventually(t, "no lock remains", func() bool { return number(t, observer, k.locks) == 0 })
	})
}
