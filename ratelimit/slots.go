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

// slotsOf returns the keys of the slots of id. The caller must not change them.
func (l *Limiter) slotsOf(id string) []sqllock.Key {
	if l.most < worthKeeping {
		return l.makeSlots(id)
	}
	kept := &l.kept[maphash.String(seed, id)%keptIDs]
	if last := kept.Load(); last != nil && last.id == id {
		return last.keys
	}
	keys := l.makeSlots(id)
	kept.Store(&idSlots{strings.Clone(id), keys})
	return keys
}

func (l *Limiter) makeSlots(id string) []sqllock.Key {
	keys := make([]sqllock.Key, l.most)
	for i := range keys {
		keys[i] = l.slotKey(id, i)
	}
	return keys
}

// A Limiter keeps the slots of up to keptIDs ids, if these have worthKeeping at
// least: each is a hash. A limit in total, or per tenant, finds them again.
const keptIDs, worthKeeping = 128, 8

var seed = maphash.MakeSeed()

// An idSlots is the slots of an id.
type idSlots struct {
	id   string
	keys []sqllock.Key
}

// try acquires a free slot, or fails with ErrHeld.
func (l *Limiter) try(ctx context.Context, slots []sqllock.Key) (lock *sqllock.Lock, err error) {
	if len(slots) > 1 && l.any != nil {
		return l.any.TryAny(ctx, slots...)
	}
	for _, key := range slots {
		if lock, err = l.locks.TryLock(ctx, key); !errors.Is(err, sqllock.ErrHeld) {
			break
		}
	}
	return lock, err
}

// canWait reports whether the Locker can wait for one of these slots.
func (l *Limiter) canWait(slots []sqllock.Key) bool { return len(slots) == 1 || l.any != nil }

// wait waits for a free slot until ctx ends. If the Locker cannot wait, it tries
// once.
func (l *Limiter) wait(ctx context.Context, slots []sqllock.Key) (*sqllock.Lock, error) {
	switch {
	case len(slots) == 1:
		return l.locks.Lock(ctx, slots[0])
	case l.any != nil:
		return l.any.LockAny(ctx, slots...)
	}
	return l.try(ctx, slots)
}
