package ratelimit

import (
	"context"
	"errors"
	"strings"

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

// hashed is how many slots a Limiter has at least, to remember those of the
// last id: each is a hash. A limit in total, with one id for all requests,
// finds them again.
const hashed = 8

// An idSlots is the slots of an id.
type idSlots struct {
	id    string
	slots slotSet
}

// slotKeys returns the keys of the slots of id. The caller must not change
// them.
func (l *Limiter) slotKeys(id string) slotSet {
	if l.slots == 1 {
		return slotSet{first: l.keys.SlotKey(id, 0)}
	}
	if last := l.lastSlots.Load(); last != nil && last.id == id {
		return last.slots
	}
	s := slotSet{all: make([]sqllock.Key, l.slots)}
	for i := range s.all {
		s.all[i] = l.keys.SlotKey(id, i)
	}
	s.first = s.all[0]
	if l.slots >= hashed {
		l.lastSlots.Store(&idSlots{strings.Clone(id), s})
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
	case l.oneOf != nil && len(s.all) == l.slots && len(l.classes) == 0: // the order of the slots means nothing
		locks, err := l.oneOf.TryEach(ctx, [][]sqllock.Key{s.all})
		if err != nil {
			return nil, err
		}
		return locks[0], nil
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
