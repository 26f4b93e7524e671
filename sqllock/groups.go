package sqllock

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// groups lets package ratelimit acquire one key of each of several groups in
// one call, or none: see [inside.TryEach].
type groups = inside.Groups

// tryEach acquires one key of each group, or none.
//
// If every key of a group was seen held, the error is a *[inside.FullError],
// which matches ErrHeld. Its other errors are those of TryLock, and ErrCapacity
// for more groups than WithMaxHeld allows.
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
	return s.acquireEach(ctx, keytable.Want{}, groups)
}
