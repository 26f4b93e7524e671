package lockertest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// TryEach is [inside.TryEach] of locks.
func TryEach(ctx context.Context, locks sqllock.Locker, groups [][]sqllock.Key) (sqllock.Locks, error) {
	return inside.TryEach[sqllock.Key, sqllock.Locks](ctx, inside.GroupsOf(locks), groups)
}

// twoEach is twoAny for groups.
func twoEach(t *testing.T, fleet Fleet) (a, b sqllock.Locker, ok bool) {
	a = fleet.New(t)
	if _, isSharded := a.(interface{ Index(sqllock.Key) int }); inside.GroupsOf(a) == nil || isSharded { // it needs all keys on one shard
		return nil, nil, false
	}
	return a, fleet.New(t), true
}

// newKeys returns n keys that no other test uses.
func newKeys(t *testing.T, n int) (keys []sqllock.Key) {
	for range n {
		keys = append(keys, newKey(t))
	}
	return keys
}

// tryEach: one key of each group is acquired, or none, whichever locker has the
// others. The error names the group that is full.
func tryEach(t *testing.T, fleet Fleet) {
	a, b, ok := twoEach(t, fleet)
	if !ok {
		return
	}
	user, tenant, all := newKeys(t, 1), newKeys(t, 2), newKeys(t, 40)
	groups := [][]sqllock.Key{user, tenant, all}
	first := mustEach(t, a, t.Context(), groups)
	rejected(t, b, t.Context(), groups, 0)
	rejected(t, a, t.Context(), groups, 0)
	second := mustEach(t, b, t.Context(), [][]sqllock.Key{newKeys(t, 1), tenant, all})
	for _, l := range []sqllock.Locker{a, b} {
		rejected(t, l, t.Context(), [][]sqllock.Key{newKeys(t, 1), tenant, all}, 1)
	}
	mustUnlockAll(t, first)
	mustUnlockAll(t, mustEach(t, b, t.Context(), groups)) // a rejection has left nothing behind
	var taken []sqllock.Locks
	for range len(all) - 1 {
		l := []sqllock.Locker{a, b}[len(taken)%2]
		taken = append(taken, mustEach(t, l, t.Context(), [][]sqllock.Key{all, newKeys(t, 1)}))
	}
	for _, l := range []sqllock.Locker{a, b} {
		rejected(t, l, t.Context(), [][]sqllock.Key{newKeys(t, 1), all}, 1)
	}
	for _, locks := range append(taken, second) {
		mustUnlockAll(t, locks)
	}
	if _, err := TryEach(t.Context(), a, nil); err == nil || errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryEach without groups: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TryEach(ctx, a, groups); !errors.Is(err, context.Canceled) {
		t.Errorf("TryEach with an ended context: %v", err)
	}
}

// eachContention: no level ever admits more than it has keys, and nothing is
// left behind.
func eachContention(t *testing.T, fleet Fleet) {
	const callers = 32
	a, b, ok := twoEach(t, fleet)
	if !ok {
		return
	}
	tenants, all := [][]sqllock.Key{newKeys(t, 2), newKeys(t, 3)}, newKeys(t, 9)
	var (
		wg      sync.WaitGroup
		within  [3]atomic.Int32
		granted atomic.Int32
	)
	for i := range callers {
		l, user, tenant := []sqllock.Locker{a, b}[i%2], newKeys(t, 1), i/2%2
		wg.Go(func() {
			for range fleet.rounds(3, 24) {
				groups := [][]sqllock.Key{user, tenants[tenant], all}
				locks, err := TryEach(t.Context(), l, groups)
				if errors.Is(err, sqllock.ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryEach: %v", err)
					return
				}
				granted.Add(1)
				for g, n := range map[int]int{tenant: len(tenants[tenant]), 2: len(all)} {
					if got := int(within[g].Add(1)); got > n {
						t.Errorf("%d hold %d keys", got, n)
					}
				}
				within[tenant].Add(-1)
				within[2].Add(-1)
				mustUnlockAll(t, locks)
			}
		})
	}
	wg.Wait()
	if granted.Load() == 0 {
		t.Error("no caller was admitted")
	}
	for range all {
		defer mustUnlockAll(t, mustEach(t, b, t.Context(), [][]sqllock.Key{newKeys(t, 1), all}))
	}
}

// eachLimitContention: callers with a limit of three and callers with one of
// four come and go, of both lockers. No limit is ever exceeded, and no place is
// left behind.
func eachLimitContention(t *testing.T, fleet Fleet) {
	const callers = 12
	a, b, ok := twoEach(t, fleet)
	if !ok {
		return
	}
	lockers, slots := []sqllock.Locker{a, b}, newKeys(t, 4)
	var (
		wg     sync.WaitGroup
		within [2]atomic.Int32 // those of each limit
	)
	for i := range callers {
		l, which := lockers[i%2], i/2%2
		limit := []int{4, 3}[which]
		wg.Go(func() {
			for range fleet.rounds(6, 32) {
				locks, err := TryEach(t.Context(), l, [][]sqllock.Key{slots[:limit]})
				if errors.Is(err, sqllock.ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryEach: %v", err)
					return
				}
				mine := int(within[which].Add(1))
				if all := int(within[0].Load() + within[1].Load()); mine > limit || all > 4 {
					t.Errorf("%d of a limit of %d, and %d of 4", mine, limit, all)
				}
				within[which].Add(-1)
				mustUnlockAll(t, locks)
			}
		})
	}
	wg.Wait()
	for i := range 4 {
		defer mustUnlockAll(t, mustEach(t, lockers[i%2], t.Context(), [][]sqllock.Key{slots}))
	}
	for _, l := range lockers {
		rejected(t, l, t.Context(), [][]sqllock.Key{slots}, 0)
	}
}

// mustEach acquires one key of each group.
func mustEach(t *testing.T, l sqllock.Locker, ctx context.Context, groups [][]sqllock.Key) sqllock.Locks {
	t.Helper()
	locks, err := TryEach(ctx, l, groups)
	if err != nil || len(locks) != len(groups) {
		t.Fatalf("TryEach of free groups: %d locks, %v", len(locks), err)
	}
	for i, lock := range locks {
		if !slices.Contains(groups[i], lock.Key()) {
			t.Errorf("lock %d is not of its group", i)
		}
	}
	return locks
}

// rejected fails the test unless TryEach reports that group full is full.
func rejected(t *testing.T, l sqllock.Locker, ctx context.Context, groups [][]sqllock.Key, full int) {
	t.Helper()
	locks, err := TryEach(ctx, l, groups)
	var group *inside.FullError
	if !errors.As(err, &group) || group.Level != full || !errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryEach with group %d full: %d locks, %v", full, len(locks), err)
	}
}

func mustUnlockAll(t *testing.T, locks sqllock.Locks) {
	t.Helper()
	if err := locks.Unlock(); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
