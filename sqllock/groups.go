package sqllock

import (
	"context"
	"errors"

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
// with a key in two groups, or with keys of [Pair] it fails. The same key twice
// in one group counts once. The keys of a group are of one kind.
//
// A call never holds a part of its groups while it waits. It does not overtake
// a caller of this process that waits for a key. With lease tables and MariaDB,
// a rejected call may hold some keys for a moment, and a second round trip
// releases them. Meanwhile other callers find these keys held.
func (s *Session) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	for _, keys := range groups {
		if err := s.useSecrets(ctx, keys, false); err != nil {
			return nil, err
		}
	}
	return s.home.tryEach(ctx, groups)
}

// Why groups cannot be acquired.
var (
	errNoGroups   = errors.New("sqllock: a call needs a group at least")
	errEmptyGroup = errors.New("sqllock: each group needs a key at least")
	errPairGroups = errors.New("sqllock: groups are of keys of a Namespace or of ID, not of Pair")
)

func (hm *home) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	err := error(nil)
	if len(groups) == 0 {
		err = errNoGroups
	}
	for _, keys := range groups {
		switch {
		case len(keys) == 0:
			err = errEmptyGroup
		case keys[0].space != dialect.Bigint: // the keys of a group are of one kind
			err = errPairGroups
		}
	}
	if err != nil {
		hm.table.Count(err)
		return nil, err
	}
	return hm.acquireEach(ctx, keytable.Want{}, groups)
}
