package admission

import (
	"context"
	"errors"
	"slices"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Held are the locks that a request has, in the order of its levels. A limiter
// may admit a request without a lock. That one is nil, and is neither lost nor
// released.
type Held struct{ sqllock.Locks }

// None reports whether h has no lock.
func (h Held) None() bool {
	return !slices.ContainsFunc(h.Locks, func(lock *sqllock.Lock) bool { return lock != nil })
}

// CarriedBy returns those locks of h that ctx, which Bind has returned, carries.
// The lock of a dry run is not among them: no request depends on it.
func (h Held) CarriedBy(ctx context.Context) Held {
	not := func(lock *sqllock.Lock) bool { return !carries(ctx, lock) }
	if !slices.ContainsFunc(h.Locks, not) {
		return h
	}
	return Held{slices.DeleteFunc(slices.Clone(h.Locks), not)}
}

// carries reports whether ctx carries lock, which may be nil.
func carries(ctx context.Context, lock *sqllock.Lock) bool {
	if found, ok := sqllock.FromContext(ctx); !ok || found == lock {
		return ok
	}
	found, ok := sqllock.FromContext(ctx, lock.Key())
	return ok && found == lock
}

// Lost reports whether a lock of h is lost. It compares the clock.
func (h Held) Lost() bool {
	return slices.ContainsFunc(h.Locks, func(lock *sqllock.Lock) bool { return errors.Is(lock.Err(), sqllock.ErrLost) })
}

// Released reports whether h has locks, and all of them were released by Unlock.
func (h Held) Released() bool {
	return !h.None() && !slices.ContainsFunc(h.Locks, func(lock *sqllock.Lock) bool {
		return lock != nil && !errors.Is(lock.Err(), sqllock.ErrReleased)
	})
}
