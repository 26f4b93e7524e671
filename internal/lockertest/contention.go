package lockertest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A limit counts the callers that hold one of n keys. It does not rely on the
// locks that it checks.
type limit struct {
	n      int32
	inside atomic.Int32
}

// A holding is a lock or a set of locks.
type holding interface{ Unlock() error }

// A caller of a crowd acquires with take. The limits within count it while it
// holds what take returned.
type caller struct {
	take   func() (holding, error)
	within []*limit
}

// crowd lets callers come and go at once, rounds times each. No limit is ever
// exceeded. It returns how many were admitted: ErrHeld is no failure.
func crowd(t *testing.T, rounds int, callers []caller) int {
	t.Helper()
	var (
		wg      sync.WaitGroup
		granted atomic.Int32
	)
	for _, c := range callers {
		wg.Go(func() {
			for range rounds {
				held, err := c.take()
				if errors.Is(err, sqllock.ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("taking: %v", err)
					return
				}
				granted.Add(1)
				for _, l := range c.within {
					if got := l.inside.Add(1); got > l.n {
						t.Errorf("%d hold %d keys", got, l.n)
					}
				}
				for _, l := range c.within {
					l.inside.Add(-1)
				}
				if err := held.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	return int(granted.Load())
}

// contention: callers of several processes contend for one key. Each call that
// waits gets it.
func contention(t *testing.T, fleet Fleet) {
	key, rounds, one := newKey(t), fleet.rounds(3, 30), &limit{n: 1}
	var callers []caller
	for range 3 {
		l := fleet.New(t)
		for j := range 8 {
			take := []func(context.Context, sqllock.Key) (*sqllock.Lock, error){l.TryLock, l.Lock}[j%2]
			callers = append(callers, caller{func() (holding, error) { return take(t.Context(), key) }, []*limit{one}})
		}
	}
	if n := crowd(t, rounds, callers); n < 12*rounds {
		t.Errorf("%d grants", n)
	}
}

// anyWaits: every caller that waits for one of several keys gets one.
func anyWaits(t *testing.T, fleet Fleet) {
	lockers, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	const n = 24
	keys, rounds, three := newKeys(t, 3), fleet.rounds(2, 10), &limit{n: 3}
	var callers []caller
	for i := range n {
		callers = append(callers, caller{func() (holding, error) { return lockers[i%2].LockAny(t.Context(), keys...) }, []*limit{three}})
	}
	if got := crowd(t, rounds, callers); got != n*rounds {
		t.Errorf("%d grants of %d calls that waited", got, n*rounds)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lockers[0].LockAny(ctx, keys...); !errors.Is(err, context.Canceled) {
		t.Errorf("LockAny with an ended context: %v", err)
	}
}

// anyContention: n slots never admit more than n callers at once, and no caller
// is rejected while a slot is free.
func anyContention(t *testing.T, fleet Fleet) {
	const slots = 5
	lockers, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	keys := newKeys(t, slots)
	for range fleet.rounds(3, 30) {
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			locks sqllock.Locks
		)
		for i := range 32 {
			wg.Go(func() {
				lock, err := lockers[i%2].TryAny(t.Context(), keys...)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					locks = append(locks, lock)
				} else if !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryAny: %v", err)
				}
			})
		}
		wg.Wait()
		if len(locks) != slots {
			t.Errorf("%d of %d slots were taken", len(locks), slots)
		}
		mustUnlockAll(t, locks)
	}
}

// allContention: callers want sets of keys that overlap, in any order. Each set
// is acquired as a whole, and no caller blocks another one for ever.
func allContention(t *testing.T, fleet Fleet) {
	type allLocker interface {
		LockAll(ctx context.Context, keys ...sqllock.Key) (sqllock.Locks, error)
	}
	keys := append(newKeys(t, 4), sqllock.Pair(8, 1), sqllock.Pair(8, 2))
	one := make([]*limit, len(keys))
	for i := range one {
		one[i] = &limit{n: 1}
	}
	rounds := fleet.rounds(10, 60)
	var callers []caller
	for range 2 {
		l, ok := fleet.New(t).(allLocker)
		if !ok {
			return
		}
		for range 6 {
			var set []sqllock.Key
			var within []*limit
			for _, n := range rand.Perm(len(keys))[:3] {
				set, within = append(set, keys[n]), append(within, one[n])
			}
			callers = append(callers, caller{func() (holding, error) { return l.LockAll(t.Context(), set...) }, within})
		}
	}
	if n := crowd(t, rounds, callers); n != len(callers)*rounds {
		t.Errorf("%d grants of %d calls that waited", n, len(callers)*rounds)
	}
}

// eachContention: callers of two tenants come and go. Those of the first tenant
// have a limit of three, or of four as before it was lowered. No level ever
// admits more than it has keys, and nothing is left behind.
func eachContention(t *testing.T, fleet Fleet) {
	lockers, ok := twoEach(t, fleet)
	if !ok {
		return
	}
	slots, few, all := newKeys(t, 4), newKeys(t, 2), newKeys(t, 9)
	three, four, ofFew, ofAll := &limit{n: 3}, &limit{n: 4}, &limit{n: 2}, &limit{n: 9}
	levels := []struct {
		places []sqllock.Key
		within []*limit
	}{{slots[:3], []*limit{three, four, ofAll}}, {slots, []*limit{four, ofAll}}, {few, []*limit{ofFew, ofAll}}}
	var callers []caller
	for i := range 30 {
		level := levels[i/2%3]
		groups := [][]sqllock.Key{newKeys(t, 1), level.places, all}
		callers = append(callers, caller{func() (holding, error) { return TryEach(t.Context(), lockers[i%2], groups) }, level.within})
	}
	if crowd(t, fleet.rounds(4, 30), callers) == 0 {
		t.Error("no caller was admitted")
	}
	for i := range slots {
		defer mustUnlockAll(t, mustEach(t, lockers[i%2], [][]sqllock.Key{slots, all}))
	}
	for _, l := range lockers {
		rejected(t, l, [][]sqllock.Key{all, slots}, 1)
	}
	for range len(all) - len(slots) {
		defer mustUnlockAll(t, mustEach(t, lockers[1], [][]sqllock.Key{newKeys(t, 1), all}))
	}
}

// cancelled: callers that give up at any moment leave no lock behind, and do
// not end the locks of other callers.
func cancelled(t *testing.T, fleet Fleet) {
	a, b := fleet.New(t), fleet.New(t)
	bystander := try(t, a, newKey(t))
	keys := newKeys(t, 3)
	var wg sync.WaitGroup
	for i := range fleet.rounds(100, 1000) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
			defer cancel()
			take := a.TryLock
			if i%2 == 0 {
				take = a.Lock
			}
			if lock, err := take(ctx, keys[i%len(keys)]); err == nil {
				_ = lock.Unlock()
			}
		})
	}
	wg.Wait()
	for _, key := range keys {
		release(t, await(t, lockLater(t.Context(), b, key)))
	}
	if err := bystander.Err(); err != nil {
		t.Errorf("a lock that cancelled calls had nothing to do with: %v", err)
	}
	release(t, bystander)
}
