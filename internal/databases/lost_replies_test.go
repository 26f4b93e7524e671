package databases

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// lossy runs a statement, and breaks its connection before the reply when lose
// returns true.
func lossy(lose func() bool) intercept {
	return func(_ string, carryOut func() error) error {
		err := carryOut()
		if lose() {
			return errBroken
		}
		return err
	}
}

// Replies of acquires, releases and renewals get lost. No key is granted twice,
// and none stays locked without a holder, while the sessions live.
func TestLongLostReplies(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind, o lockertest.Orders) {
		var losing atomic.Bool
		var lost atomic.Int64
		lose := func() bool {
			if !losing.Load() || rand.IntN(20) > 0 { //nolint:gosec // a test's
				return false
			}
			lost.Add(1)
			return true
		}
		sessions := []*sqllock.Session{
			session(t, intercepted(t, o, lossy(lose)), append(o.Options(), sqllock.WithLease(2*time.Second))...),
			session(t, intercepted(t, o, lossy(lose)), append(o.Options(), sqllock.WithLease(2*time.Second))...),
		}
		const keys, callers = 6, 16
		var (
			holders [keys]atomic.Pointer[sqllock.Lock]
			granted atomic.Int64
			wg      sync.WaitGroup
		)
		losing.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for i := range callers {
			wg.Go(func() {
				for round := 0; ctx.Err() == nil && (round < 20 || lost.Load() < 20); round++ {
					n := (i + round) % keys
					lock, err := sessions[i%2].TryLock(ctx, sqllock.ID(int64(n)))
					if err != nil {
						if errors.Is(err, sqllock.ErrHeld) || errors.Is(err, sqllock.ErrUnavailable) || ctx.Err() != nil {
							time.Sleep(time.Millisecond) // a client's pause
							continue
						}
						t.Errorf("TryLock: %v", err)
						return
					}
					granted.Add(1)
					if other := holders[n].Swap(lock); other != nil && other.Err() == nil && lock.Err() == nil {
						t.Errorf("key %d is held twice", n)
					}
					time.Sleep(time.Millisecond) // the work
					holders[n].CompareAndSwap(lock, nil)
					_ = lock.Unlock() // its error depends on which reply was lost
				}
			})
		}
		wg.Wait()
		losing.Store(false)
		t.Logf("%d replies lost, %d grants, %d and %d losses", lost.Load(), granted.Load(), sessions[0].Stats().Losses, sessions[1].Stats().Losses)
		for n := range keys {
			for _, s := range sessions {
				awaitGrant(t, "each key is free to every session", s, sqllock.ID(int64(n)))
			}
		}
		if k.locks != "" {
			observer := open(t, o.Driver, o.DSN)
			lockertest.Eventually(t, "no lock remains", func() bool { return number(t, observer, k.locks) == 0 })
		}
	})
}
