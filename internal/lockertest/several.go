package lockertest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// An anyLocker is a locker that acquires one of several keys.
type anyLocker interface {
	sqllock.Locker
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// twoAny returns two lockers of the fleet that can acquire one of several keys.
// ok is false if the kind under test cannot, which is not a failure.
func twoAny(t *testing.T, fleet Fleet) (two [2]anyLocker, ok bool) {
	if two[0], ok = fleet.New(t).(anyLocker); ok {
		two[1] = fleet.New(t).(anyLocker)
	}
	return two, ok
}

// twoEach is twoAny for groups. Those of a sharded locker need all keys on one
// shard.
func twoEach(t *testing.T, fleet Fleet) (two [2]sqllock.Locker, ok bool) {
	two[0] = fleet.New(t)
	if _, isSharded := two[0].(interface{ Index(sqllock.Key) int }); inside.GroupsOf(two[0]) == nil || isSharded {
		return two, false
	}
	two[1] = fleet.New(t)
	return two, true
}

// TryEach is [inside.TryEach] of locks.
func TryEach(ctx context.Context, locks sqllock.Locker, groups [][]sqllock.Key) (sqllock.Locks, error) {
	return inside.TryEach[sqllock.Key, sqllock.Locks](ctx, inside.GroupsOf(locks), groups)
}

// tryAny: each call acquires the first key that is free, whichever locker has
// the others.
func tryAny(t *testing.T, fleet Fleet) {
	lockers, ok := twoAny(t, fleet)
	if !ok {
		return
	}
	ctx, a := t.Context(), lockers[0]
	keys := append(newKeys(t, 3), sqllock.Pair(9, 1), sqllock.Pair(9, 2))
	if _, err := a.TryAny(ctx); err == nil || errors.Is(err, sqllock.ErrHeld) {
		t.Errorf("TryAny without keys: %v", err)
	}
	twice, err := a.TryAny(ctx, keys[0], keys[0], keys[1])
	if err != nil || !fleet.AnyOrder && twice.Key() != keys[0] {
		t.Fatalf("TryAny with a key named twice: %v", err)
	}
	release(t, twice)
	var locks sqllock.Locks
	taken := make(map[sqllock.Key]bool)
	for i := range keys {
		lock, err := lockers[i%2].TryAny(ctx, keys...)
		if err != nil {
			t.Fatalf("TryAny with %d of %d keys free: %v", len(keys)-i, len(keys), err)
		}
		if taken[lock.Key()] || !fleet.AnyOrder && lock.Key() != keys[i] {
			t.Fatalf("TryAny %d did not take the first free key", i)
		}
		taken[lock.Key()] = true
		locks = append(locks, lock)
	}
	for _, l := range lockers {
		for _, held := range [][]sqllock.Key{keys, {keys[0], keys[0]}} {
			if _, err := l.TryAny(ctx, held...); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryAny with no key free: %v", err)
			}
		}
	}
	release(t, locks[1])
	lock, err := a.TryAny(ctx, keys...)
	if err != nil || lock.Key() != locks[1].Key() {
		t.Fatalf("TryAny with one key free: %v", err)
	}
	locks[1] = lock
	mustUnlockAll(t, locks)
}

// tryEach: one key of each group is acquired, or none, whichever locker has the
// others. The error names the group that is full.
func tryEach(t *testing.T, fleet Fleet) {
	lockers, ok := twoEach(t, fleet)
	if !ok {
		return
	}
	a, b := lockers[0], lockers[1]
	tenant, all := newKeys(t, 2), newKeys(t, 40)
	groups := [][]sqllock.Key{newKeys(t, 1), tenant, all}
	first := mustEach(t, a, groups)
	rejected(t, b, groups, 0)
	rejected(t, a, groups, 0)
	taken := []sqllock.Locks{mustEach(t, b, [][]sqllock.Key{newKeys(t, 1), tenant, all})}
	for _, l := range lockers {
		rejected(t, l, [][]sqllock.Key{newKeys(t, 1), tenant, all}, 1)
	}
	mustUnlockAll(t, first)
	mustUnlockAll(t, mustEach(t, b, groups)) // a rejection has left nothing behind
	for len(taken) < len(all) {
		taken = append(taken, mustEach(t, lockers[len(taken)%2], [][]sqllock.Key{all, newKeys(t, 1)}))
	}
	for _, l := range lockers {
		rejected(t, l, [][]sqllock.Key{newKeys(t, 1), all}, 1)
	}
	for _, locks := range taken {
		mustUnlockAll(t, locks)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := TryEach(ctx, a, groups); !errors.Is(err, context.Canceled) {
		t.Errorf("TryEach with an ended context: %v", err)
	}
}

// readers: readers share a key, and exclude the callers that want it alone.
func readers(t *testing.T, fleet Fleet) {
	type readerLocker interface {
		sqllock.Locker
		TryRLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error)
		RLock(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error)
	}
	var lockers [2]readerLocker
	for i := range lockers {
		l, ok := fleet.New(t).(readerLocker)
		if !ok {
			return
		}
		lockers[i] = l
	}
	for _, key := range []sqllock.Key{newKey(t), sqllock.ID(-1 << 63), sqllock.Pair(-1, 7)} {
		var reading sqllock.Locks
		for _, l := range lockers {
			for _, take := range []func(context.Context, sqllock.Key) (*sqllock.Lock, error){l.TryRLock, l.RLock} {
				lock, err := take(t.Context(), key)
				if errors.Is(err, errors.ErrUnsupported) {
					return
				}
				if err != nil {
					t.Fatalf("a reader beside others: %v", err)
				}
				reading = append(reading, lock)
			}
		}
		for len(reading) > 0 {
			for _, l := range lockers {
				reject(t, l, key)
			}
			release(t, reading[0])
			reading = reading[1:]
		}
		alone := try(t, lockers[1], key)
		for _, l := range lockers {
			if _, err := l.TryRLock(t.Context(), key); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryRLock of a key that a caller holds alone: %v, want ErrHeld", err)
			}
		}
		release(t, alone)
	}
}

// mustEach acquires one key of each group.
func mustEach(t *testing.T, l sqllock.Locker, groups [][]sqllock.Key) sqllock.Locks {
	t.Helper()
	locks, err := TryEach(t.Context(), l, groups)
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
func rejected(t *testing.T, l sqllock.Locker, groups [][]sqllock.Key, full int) {
	t.Helper()
	locks, err := TryEach(t.Context(), l, groups)
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
