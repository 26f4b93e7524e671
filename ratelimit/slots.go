package ratelimit

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An anyLocker acquires the first free one of several keys in one call.
// [*sqllock.Session], *shard.Locker and [*sqllock.Memory] are such Lockers.
type anyLocker interface {
	TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
	LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error)
}

// slots are keys of an id's slots. A single one needs no allocation. The zero
// value has none.
type slots struct {
	first    sqllock.Key
	all      []sqllock.Key // nil if there is one
	reserved int           // so many at the beginning are reserved for a class
}

// slotsOf returns the slots of id. The caller must not change them.
func (l *Limiter) slotsOf(id string) slots {
	if l.most == 1 {
		return slots{first: l.slotKey(id, 0)}
	}
	if l.most < worthKeeping {
		return l.makeSlots(id)
	}
	kept := &l.kept[maphash.String(seed, id)%keptIDs]
	if last := kept.Load(); last != nil && last.id == id {
		return last.slots
	}
	s := l.makeSlots(id)
	kept.Store(&idSlots{strings.Clone(id), s})
	return s
}

func (l *Limiter) makeSlots(id string) slots {
	all := make([]sqllock.Key, l.most)
	for i := range all {
		all[i] = l.slotKey(id, i)
	}
	return slots{first: all[0], all: all}
}

// A Limiter keeps the slots of up to keptIDs ids, if these have worthKeeping at
// least: each is a hash. A limit in total, or per tenant, finds them again.
const keptIDs, worthKeeping = 128, 8

var seed = maphash.MakeSeed()

// An idSlots is the slots of an id.
type idSlots struct {
	id    string
	slots slots
}

// keys returns the keys of all slots.
func (s slots) keys() []sqllock.Key {
	if s.all == nil {
		return []sqllock.Key{s.first}
	}
	return s.all
}

// n returns how many they are.
func (s slots) n() int {
	if s.all == nil && s.first != (sqllock.Key{}) {
		return 1
	}
	return len(s.all)
}

// upTo returns the first n slots.
func (s slots) upTo(n int) slots {
	switch {
	case n == 0:
		return slots{}
	case n == 1:
		s.all = nil
	case n < len(s.all):
		s.all = s.all[:n:n]
	}
	s.reserved = min(s.reserved, n)
	return s
}

// try acquires a free slot, or fails with ErrHeld.
func (l *Limiter) try(ctx context.Context, s slots) (lock *sqllock.Lock, err error) {
	switch {
	case s.all == nil:
		return l.locks.TryLock(ctx, s.first)
	case l.any != nil:
		return l.any.TryAny(ctx, s.all...)
	}
	for _, key := range s.all {
		if lock, err = l.locks.TryLock(ctx, key); !errors.Is(err, sqllock.ErrHeld) {
			return lock, err
		}
	}
	return nil, err
}

// canWait reports whether the Locker can wait for one of these slots.
func (l *Limiter) canWait(s slots) bool { return s.all == nil || l.any != nil }

// wait waits for a free slot until ctx ends. If the Locker cannot wait, it tries
// once.
func (l *Limiter) wait(ctx context.Context, s slots) (*sqllock.Lock, error) {
	switch {
	case s.all == nil:
		return l.locks.Lock(ctx, s.first)
	case l.any != nil:
		return l.any.LockAny(ctx, s.all...)
	}
	return l.try(ctx, s)
}
