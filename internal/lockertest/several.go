package lockertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// anyLocker is a locker that acquires one of several keys.
type anyLocker interface {
	sqllock.Locker
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// twoAny returns two lockers of the fleet that can acquire one of several keys.
// ok is false if the kind under test cannot, which is not a failure.
func twoAny(t *testing.T, fleet Fleet) (a, b anyLocker, ok bool) {
	a, ok = fleet.New(t).(anyLocker)
	if !ok {
		return nil, nil, false
	}
	return a, fleet.New(t).(anyLocker), true
}

func tryAny(t *testing.T, fleet Fleet) {
	a, b, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	ctx := t.Context()
	keys := []sqllock.Key{newKey(t), newKey(t), newKey(t), sqllock.Pair(9, 1), sqllock.Pair(9, 2)}
	if _, err := a.TryAny(ctx); err == nil || errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryAny without keys: %v", err)
	}
	twice, err := a.TryAny(ctx, keys[0], keys[0], keys[1])
	if err != nil || !fleet.AnyOrder && twice.Key() != keys[0] {
		t.Fatalf("TryAny with a key named twice: %v", err)
	}
	release(t, twice)
	var locks []*sqllock.Lock
	taken := make(map[sqllock.Key]bool)
	for i := range keys {
		l := []anyLocker{a, b}[i%2]
		lock, err := l.TryAny(ctx, keys...)
		if err != nil {
			t.Fatalf("TryAny with %d of %d keys free: %v", len(keys)-i, len(keys), err)
		}
		if taken[lock.Key()] {
			t.Fatal("TryAny took a key twice")
		}
		if !fleet.AnyOrder && lock.Key() != keys[i] {
			t.Errorf("TryAny %d did not take the first free key", i)
		}
		taken[lock.Key()] = true
		locks = append(locks, lock)
	}
	for _, l := range []anyLocker{a, b} {
		if _, err := l.TryAny(ctx, keys...); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryAny with no key free: %v", err)
		}
		if _, err := l.TryAny(ctx, keys[0], keys[0]); !errors.Is(err, sqllock.ErrHeld) {
			t.Errorf("TryAny of one held key, named twice: %v", err)
		}
	}
	release(t, locks[1])
	lock, err := a.TryAny(ctx, keys...)
	if err != nil || lock.Key() != locks[1].Key() {
		t.Fatalf("TryAny with one key free: %v", err)
	}
	release(t, lock)
	for _, i := range []int{0, 2, 3, 4} {
		release(t, locks[i])
	}
}

// anyContention: n slots never admit more than n callers at once, and no caller
// is rejected while a slot is free.
func anyContention(t *testing.T, fleet Fleet) {
	const slots, callers = 5, 32
	a, b, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	keys := make([]sqllock.Key, slots)
	for i := range keys {
		keys[i] = newKey(t)
	}
	for range fleet.rounds(3, 30) {
		var (
			wg     sync.WaitGroup
			gate   = make(chan struct{})
			inside atomic.Int32
			mu     sync.Mutex
			locks  []*sqllock.Lock
		)
		for i := range callers {
			l := []anyLocker{a, b}[i%2]
			wg.Go(func() {
				<-gate
				lock, err := l.TryAny(t.Context(), keys...)
				if errors.Is(err, sqllock.ErrHeld) {
					return
				}
				if err != nil {
					t.Errorf("TryAny: %v", err)
					return
				}
				if n := inside.Add(1); n > slots {
					t.Errorf("%d hold %d slots", n, slots)
				}
				mu.Lock()
				locks = append(locks, lock)
				mu.Unlock()
			})
		}
		close(gate)
		wg.Wait()
		if len(locks) != slots {
			t.Errorf("%d of %d slots were taken by %d callers", len(locks), slots, callers)
		}
		for _, lock := range locks {
			release(t, lock)
		}
	}
}

// anyWaits: every caller that waits for one of several keys gets one.
func anyWaits(t *testing.T, fleet Fleet) {
	a, b, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	keys := []sqllock.Key{newKey(t), newKey(t), newKey(t)}
	var (
		wg     sync.WaitGroup
		inside atomic.Int32
	)
	for i := range 24 {
		l := []anyLocker{a, b}[i%2]
		wg.Go(func() {
			for range fleet.rounds(2, 10) {
				lock, err := l.LockAny(t.Context(), keys...)
				if err != nil {
					t.Errorf("LockAny: %v", err)
					return
				}
				if n := inside.Add(1); int(n) > len(keys) {
					t.Errorf("%d hold %d keys", n, len(keys))
				}
				inside.Add(-1)
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.LockAny(ctx, keys...); !errors.Is(err, context.Canceled) {
		t.Errorf("LockAny with an ended context: %v", err)
	}
}
