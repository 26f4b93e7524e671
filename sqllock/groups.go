package sqllock

import (
	"context"
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// groups lets package ratelimit acquire one key of each of several groups in
// one call, or none: see [inside.TryEach].
type groups = inside.Groups

// tryEach acquires one key of each group, or none. Locks[i] is of groups[i].
//
// If every key of a group was seen held, the error is a *[inside.FullError],
// which matches ErrHeld. Its other errors are those of TryLock, and ErrCapacity
// for more groups than WithMaxHeld allows. Without groups, with an empty group,
// with a key in two groups, or with a key of [Pair] it fails. The same key
// twice in one group counts once.
//
// A call never holds a part of its groups while it waits. It does not overtake
// a caller of this process that waits for a key. With lease tables and MariaDB,
// a rejected call may hold some keys for a moment, and a second round trip
// releases them. Meanwhile other callers find these keys held.
func (s *Session) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	if err := s.useSecrets(ctx, slices.Concat(groups...), false); err != nil {
		return nil, err
	}
	return s.home.tryEach(ctx, groups)
}

// Why groups cannot be acquired.
var (
	errNoGroups   = errors.New("sqllock: a call needs a group at least")
	errEmptyGroup = errors.New("sqllock: each group needs a key at least")
	errTwoGroups  = errors.New("sqllock: a key is in two groups")
	errPairGroups = errors.New("sqllock: groups are of keys of a Namespace or of ID, not of Pair")
)

func (hm *home) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	levels, err := levelsOf(groups)
	if err != nil {
		hm.table.Count(err)
		return nil, err
	}
	return hm.acquireEach(ctx, keytable.Want{}, levels, func(level int, id keytable.ID) Key {
		return groups[level][slices.IndexFunc(groups[level], func(k Key) bool { return k.id() == id })]
	})
}

// levelsOf returns groups as the key table knows them.
func levelsOf(groups [][]Key) ([][]keytable.ID, error) {
	if len(groups) == 0 {
		return nil, errNoGroups
	}
	levels := make([][]keytable.ID, len(groups))
	groupOf := make(map[keytable.ID]int)
	for g, keys := range groups {
		if len(keys) == 0 {
			return nil, errEmptyGroup
		}
		levels[g] = make([]keytable.ID, len(keys))
		for i, k := range keys {
			id := k.id()
			if k.space != dialect.Bigint {
				return nil, errPairGroups
			}
			if other, ok := groupOf[id]; ok && other != g {
				return nil, errTwoGroups
			}
			groupOf[id], levels[g][i] = g, id
		}
	}
	return levels, nil
}
