package places

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Held are the places that a request has. The zero value has none, and its
// methods do nothing.
//
// A limiter may admit a request without a lock. Such a place is a nil lock,
// which Bind and Unlock accept. It is neither lost nor released.
//
// Invariant: at most one of the fields is set.
type Held struct {
	one     *sqllock.Lock // of a request that needed one place
	several sqllock.Locks // of one that needed several; some may be nil
}

// One returns the lock of a request that needed one place at most. It is nil if
// the request was admitted without one.
func (h Held) One() *sqllock.Lock { return h.one }

// Locks returns the locks of h, in the order of [Wanted.Add].
func (h Held) Locks() sqllock.Locks {
	if h.one != nil {
		return sqllock.Locks{h.one}
	}
	return h.several
}

// None reports whether h has no lock.
func (h Held) None() bool {
	for _, lock := range h.several {
		if lock != nil {
			return false
		}
	}
	return h.one == nil
}

// Bind returns ctx with all locks in it. It ends with the loss of any. If h has
// none, Bind is context.WithCancel.
func (h Held) Bind(ctx context.Context) (context.Context, context.CancelFunc) {
	if h.several != nil {
		return h.several.Bind(ctx)
	}
	return h.one.Bind(ctx)
}

// Unlock releases all locks at the same time.
func (h Held) Unlock() error {
	if h.several != nil {
		return h.several.Unlock()
	}
	return h.one.Unlock()
}

// CarriedBy returns those locks of h that ctx, which Bind has returned, carries.
// The lock of a dry run is not among them: no request depends on it.
func (h Held) CarriedBy(ctx context.Context) Held {
	if h.several == nil {
		if carried, ok := sqllock.FromContext(ctx); ok && carried == h.one {
			return h
		}
		return Held{}
	}
	carried := make(sqllock.Locks, 0, len(h.several))
	for _, lock := range h.several {
		if carries(ctx, lock) {
			carried = append(carried, lock)
		}
	}
	return Held{several: carried}
}

// carries reports whether ctx carries lock, which may be nil.
func carries(ctx context.Context, lock *sqllock.Lock) bool {
	found, ok := sqllock.FromContext(ctx, lock.Key())
	return ok && found == lock
}

// Has reports whether lock is one of h.
func (h Held) Has(lock *sqllock.Lock) bool {
	if lock == nil {
		return false
	}
	for _, l := range h.several {
		if l == lock {
			return true
		}
	}
	return h.one == lock
}

// Lost reports whether a lock of h is lost. It compares the clock.
func (h Held) Lost() bool {
	for _, lock := range h.several {
		if errors.Is(lock.Err(), sqllock.ErrLost) {
			return true
		}
	}
	return h.one != nil && errors.Is(h.one.Err(), sqllock.ErrLost)
}

// Released reports whether h has locks, and all of them were released by Unlock.
func (h Held) Released() bool {
	some := h.one != nil
	if some && h.one.Err() != sqllock.ErrReleased { //nolint:errorlint // Err returns it as it is
		return false
	}
	for _, lock := range h.several {
		if lock == nil {
			continue
		}
		if some = true; lock.Err() != sqllock.ErrReleased { //nolint:errorlint // as above
			return false
		}
	}
	return some
}
