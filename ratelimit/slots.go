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

// A slotSet is the keys of an id's slots. A single key needs no allocation. The
// zero value has none.
type slotSet struct {
	first    sqllock.Key
	all      []sqllock.Key // nil if there is one
	reserved int           // so many at the beginning are reserved for a class
}

// none reports whether there is no slot.
func (s slotSet) none() bool { return s.first == sqllock.Key{} && s.all == nil }

// ofClass returns the slots that are reserved for a class.
func (s slotSet) ofClass() slotSet {
	switch {
	case s.reserved == 0:
		return slotSet{}
	case s.reserved == 1:
		return slotSet{first: s.first, reserved: 1}
	}
	return slotSet{first: s.first, all: s.all[:s.reserved:s.reserved], reserved: s.reserved}
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
