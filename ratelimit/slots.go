package ratelimit

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A keyMaker makes the keys of ids: a [sqllock.Namespace] or, under a secret, a
// [sqllock.KeyedNamespace].
type keyMaker interface {
	SlotKey(id string, i int) sqllock.Key
}

// An anyLocker acquires the first free one of several keys in one call.
// [*sqllock.Session], *shard.Locker and [*sqllock.Memory] are such Lockers.
type anyLocker interface {
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// A slotSet is the keys of an id's slots. A single key needs no allocation.
type slotSet struct {
	first sqllock.Key
	all   []sqllock.Key // nil if there is one
}

// slotKeys returns the keys of the slots of id.
func (l *Limiter) slotKeys(id string) slotSet {
	s := slotSet{first: l.keys.SlotKey(id, 0)}
	if l.slots > 1 {
		s.all = make([]sqllock.Key, l.slots)
		s.all[0] = s.first
		for i := 1; i < l.slots; i++ {
			s.all[i] = l.keys.SlotKey(id, i)
		}
	}
	return s
}

// keys returns the keys of all slots.
func (s slotSet) keys() []sqllock.Key {
	if s.all == nil {
		return []sqllock.Key{s.first}
	}
	return s.all
}

// try acquires a free slot, or fails with ErrHeld.
func (l *Limiter) try(ctx context.Context, s slotSet) (*sqllock.Lock, error) {
	switch {
	case s.all == nil:
		return l.locks.TryLock(ctx, s.first)
	case l.any != nil:
		return l.any.TryAny(ctx, s.all...)
	}
	var err error
	for _, key := range s.all {
		var lock *sqllock.Lock
		lock, err = l.locks.TryLock(ctx, key)
		if !errors.Is(err, sqllock.ErrHeld) {
			return lock, err
		}
	}
	return nil, err
}
