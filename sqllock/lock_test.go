package sqllock_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The methods of a nil *Lock are safe to call. A limiter that fails open
// returns one.
func TestNilLock(t *testing.T) {
	t.Parallel()
	var lock *sqllock.Lock
	if err := lock.Err(); err != sqllock.ErrUnavailable {
		t.Errorf("Err: %v, want ErrUnavailable", err)
	}
	unlock(t, lock)
	if lock.Key() != (sqllock.Key{}) {
		t.Error("Key is not zero")
	}
	if lock.Context().Err() != nil {
		t.Error("Context has ended")
	}
	lock.OnEnd(func(error) { t.Error("OnEnd called") })
	lock.Cancel(errors.New("cause"))

	// Its contexts are the contexts of a request without a lock.
	outer := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	defer outer.Unlock()
	unaffected(t, "a nil lock", outer, lock)
}

// A lock that is detached leaves contexts of Bind alone.
func TestDetached(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	outer := mustLock(t, locks, sqllock.ID(1))
	defer outer.Unlock()
	lock := mustLock(t, locks, sqllock.ID(2))
	defer lock.Unlock()
	inside.Detach(lock)
	unaffected(t, "a detached lock", outer, lock)
}

// unaffected checks a context that is bound to lock inside a context that is
// bound to outer. It must carry outer, and must end with neither lock's work.
func unaffected(t *testing.T, what string, outer, lock *sqllock.Lock) {
	t.Helper()
	ctx, cancelOuter := outer.Bind(t.Context())
	defer cancelOuter()
	inner, cancel := lock.Bind(ctx)
	if found, _ := sqllock.FromContext(inner); found != outer {
		t.Errorf("the context of %s carries %v, want the outer lock", what, found)
	}
	lock.Cancel(errors.New("cause"))
	if inner.Err() != nil {
		t.Errorf("the context of %s ended with it", what)
	}
	cancel()
	if inner.Err() == nil || ctx.Err() != nil {
		t.Errorf("cancel of %s ended the wrong context", what)
	}
}

// FromContext with keys finds a lock below others.
func TestFromContextOfKeys(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	ctx := t.Context()
	var held []*sqllock.Lock
	for i := range int64(3) {
		lock := mustLock(t, locks, sqllock.ID(i))
		defer lock.Unlock()
		bound, cancel := lock.Bind(ctx)
		defer cancel()
		ctx, held = context.WithValue(bound, ctxKey{}, i), append(held, lock)
	}
	tests := []struct {
		name string
		keys []sqllock.Key
		want *sqllock.Lock
	}{
		{"no keys", nil, held[2]},
		{"the innermost", []sqllock.Key{sqllock.ID(2)}, held[2]},
		{"the outermost", []sqllock.Key{sqllock.ID(0)}, held[0]},
		{"the inner of two", []sqllock.Key{sqllock.ID(0), sqllock.ID(1)}, held[1]},
		{"one of them", []sqllock.Key{sqllock.ID(7), sqllock.ID(1)}, held[1]},
		{"none", []sqllock.Key{sqllock.ID(7)}, nil},
		{"another key space", []sqllock.Key{sqllock.Pair(0, 1)}, nil},
	}
	for _, tt := range tests {
		got, ok := sqllock.FromContext(ctx, tt.keys...)
		if got != tt.want || ok != (tt.want != nil) {
			t.Errorf("%s: got %p, %v; want %p", tt.name, got, ok, tt.want)
		}
	}
	if _, ok := sqllock.FromContext(t.Context(), sqllock.ID(0)); ok {
		t.Error("found a lock in a context without one")
	}
}

// ctxKey is of a value between two locks in a context.
type ctxKey struct{}

func TestCancel(t *testing.T) {
	t.Parallel()
	first, second := errors.New("first"), errors.New("second")
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	work := lock.Context()
	bound, cancel := lock.Bind(t.Context())
	defer cancel()
	lock.Cancel(first)
	lock.Cancel(second)
	late, cancelLate := lock.Bind(t.Context())
	defer cancelLate()
	for name, ctx := range map[string]context.Context{"Context": work, "Bind": bound, "late Bind": late} {
		if cause := context.Cause(ctx); cause != first {
			t.Errorf("%s: cause %v, want the first", name, cause)
		}
	}
	if err := lock.Err(); err != nil {
		t.Errorf("Err: %v; the lock stays held", err)
	}
	var ended error
	lock.OnEnd(func(cause error) { ended = cause })
	unlock(t, lock)
	if ended != sqllock.ErrReleased {
		t.Errorf("OnEnd: %v, want ErrReleased", ended)
	}
	lock.OnEnd(func(cause error) { ended = errors.Join(cause, second) })
	if !errors.Is(ended, second) || !errors.Is(ended, sqllock.ErrReleased) {
		t.Errorf("OnEnd after the end: %v", ended)
	}
}

// An unbound context is forgotten. A lock that a loop binds again and again
// does not grow, and its loss does not end the unbound contexts.
func TestUnbind(t *testing.T) {
	t.Parallel()
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	defer lock.Unlock()
	bound, cancel := lock.Bind(t.Context())
	cancel()
	lock.Cancel(errors.New("later"))
	if cause := context.Cause(bound); cause != context.Canceled {
		t.Errorf("cause of an unbound context: %v", cause)
	}
}

// A hook that panics does not keep the other locks of Locks from being
// released, whether they are of one locker or of several. The panic goes on in
// the caller of Unlock.
func TestPanicInOnEndOfSeveral(t *testing.T) {
	t.Parallel()
	one := sqllock.NewMemory()
	for name, lockers := range map[string][]*sqllock.Memory{
		"one lock":    {one},
		"one locker":  {one, one, one},
		"two lockers": {one, sqllock.NewMemory(), one},
	} {
		for at := range lockers {
			var locks sqllock.Locks
			for i, m := range lockers {
				lock, err := m.TryLock(t.Context(), sqllock.ID(int64(i)))
				if err != nil {
					t.Fatalf("%s, panic %d: a key was not released: %v", name, at-1, err)
				}
				locks = append(locks, lock)
			}
			locks[at].OnEnd(func(error) { panic("metrics") })
			func() {
				defer func() {
					if p := recover(); p != "metrics" {
						t.Errorf("%s, lock %d: recovered %v", name, at, p)
					}
				}()
				_ = locks.Unlock()
			}()
			for i, lock := range locks {
				if !errors.Is(lock.Err(), sqllock.ErrReleased) {
					t.Errorf("%s, panic %d: lock %d has %v", name, at, i, lock.Err())
				}
			}
			if err := locks.Unlock(); err != nil {
				t.Errorf("%s, lock %d: Unlock again: %v", name, at, err)
			}
		}
	}
}

// Every hook is called, in the order in which the hooks were added.
func TestSeveralOnEnd(t *testing.T) {
	t.Parallel()
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	var order []int
	for i := range 3 {
		lock.OnEnd(func(error) { order = append(order, i) })
	}
	_ = lock.Unlock()
	if !slices.Equal(order, []int{0, 1, 2}) {
		t.Errorf("hooks called: %v", order)
	}
}
