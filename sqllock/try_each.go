package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A GroupError reports that a group of TryEach had no key that was free. It
// matches ErrHeld.
type GroupError struct {
	Group int // its index, from 0
}

func (e *GroupError) Error() string {
	return fmt.Sprintf("sqllock: no key of group %d is free", e.Group)
}

// Is makes errors.Is(err, ErrHeld) hold.
func (e *GroupError) Is(target error) bool { return target == ErrHeld }

// TryEach acquires one key of each group, or none. Locks[i] is of groups[i].
//
// If a group has no free key, TryEach returns a *[GroupError], which matches
// ErrHeld. Its other errors are those of TryLock.
func (s *Session) TryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	return s.table.tryEach(ctx, groups)
}

// TryEach acquires one key of each group, or none, like [Session.TryEach].
func (m *Memory) TryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	return m.table.tryEach(ctx, groups)
}

// Why groups cannot be acquired.
var (
	errNoGroups   = errors.New("sqllock: TryEach needs a group at least")
	errEmptyGroup = errors.New("sqllock: each group of TryEach needs a key at least")
	errTwoGroups  = errors.New("sqllock: a key is in two groups of TryEach")
	errPairGroups = errors.New("sqllock: TryEach takes keys of a Namespace or of ID, not of Pair")
)

// checkGroups returns the error for groups that cannot be acquired.
func checkGroups(groups [][]Key) error {
	if len(groups) == 0 {
		return errNoGroups
	}
	groupOf := make(map[int64]int)
	for g, keys := range groups {
		if len(keys) == 0 {
			return errEmptyGroup
		}
		for _, key := range keys {
			if key.space != dialect.Bigint {
				return errPairGroups
			}
			if other, ok := groupOf[key.number]; ok && other != g {
				return errTwoGroups
			}
			groupOf[key.number] = g
		}
	}
	return nil
}

// tryEach acquires one key of each group, or none.
func (t *keyTable) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	if err := checkGroups(groups); err != nil {
		return nil, t.fail(err, want{})
	}
	beyond := waiting.TermsOf(ctx).Beyond
	var locks Locks
	for g, keys := range groups {
		lock, err := t.acquireAny(ctx, keys, want{attempt: true})
		if err == nil {
			locks = append(locks, lock)
			if g < len(beyond) {
				err = t.mayTake(ctx, keys, beyond[g])
			}
		}
		if err != nil {
			_ = locks.Unlock()
			if errors.Is(err, ErrHeld) {
				err = &GroupError{Group: g}
			}
			return nil, t.fail(err, want{})
		}
	}
	return locks, t.fail(nil, want{})
}

// mayTake returns ErrHeld unless as many of keys are free, beside the one that
// the caller has, as keys of beyond are held.
func (t *keyTable) mayTake(ctx context.Context, keys []Key, beyond []int64) error {
	var probes Locks
	defer func() { _ = probes.Unlock() }()
	missing := 0
	for _, number := range beyond {
		switch lock, err := t.acquire(ctx, ID(number), want{attempt: true}); {
		case err == nil:
			probes = append(probes, lock)
		case errors.Is(err, ErrHeld):
			missing++
		default:
			return err
		}
	}
	for ; missing > 0; missing-- {
		lock, err := t.acquireAny(ctx, keys, want{attempt: true})
		if err != nil {
			return err
		}
		probes = append(probes, lock)
	}
	return nil
}
