package sqllock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A bound context ends with the first of several causes, and so does a context
// below it.
func TestBoundContextEnds(t *testing.T) {
	t.Parallel()
	stop, parentCause := errors.New("stop"), errors.New("parent")
	type scene struct {
		lock         *sqllock.Lock
		cancel       context.CancelFunc // of Bind
		cancelParent context.CancelCauseFunc
	}
	tests := []struct {
		name  string
		end   func(s scene)
		cause error // nil: it has not ended
	}{
		{"nothing", func(scene) {}, nil},
		{"unlocked", func(s scene) { _ = s.lock.Unlock() }, nil},
		{"cancelled", func(s scene) { s.cancel() }, context.Canceled},
		{"the lock's work cancelled", func(s scene) { s.lock.Cancel(stop) }, stop},
		{"the lock's work cancelled without a cause", func(s scene) { s.lock.Cancel(nil) }, context.Canceled},
		{"the lock's work cancelled twice", func(s scene) { s.lock.Cancel(stop); s.lock.Cancel(parentCause) }, stop},
		{"the parent ended", func(s scene) { s.cancelParent(parentCause) }, parentCause},
		{"the lock's work, then the parent", func(s scene) { s.lock.Cancel(stop); s.cancelParent(parentCause) }, stop},
		{"the parent, then the lock's work", func(s scene) { s.cancelParent(parentCause); s.lock.Cancel(stop) }, parentCause},
		{"cancelled, then the lock's work", func(s scene) { s.cancel(); s.lock.Cancel(stop) }, context.Canceled},
	}
	for _, tt := range tests {
		parent, cancelParent := context.WithCancelCause(context.WithValue(t.Context(), valueKey{}, "value"))
		lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
		first, cancelFirst := lock.Bind(t.Context()) // so that the context under test is not the only one
		ctx, cancel := lock.Bind(parent)
		child, cancelChild := context.WithCancel(ctx)
		tt.end(scene{lock, cancel, cancelParent})
		for name, c := range map[string]context.Context{"the context": ctx, "a child": child} {
			if got := context.Cause(c); got != tt.cause || (c.Err() != nil) != (tt.cause != nil) {
				t.Errorf("%s: %s has the error %v and the cause %v, want %v", tt.name, name, c.Err(), got, tt.cause)
			}
		}
		if ctx.Value(valueKey{}) != "value" {
			t.Errorf("%s: the parent's value is missing", tt.name)
		}
		cancelChild()
		cancel()
		cancelFirst()
		cancelParent(nil)
		_ = lock.Unlock()
		if ctx.Err() == nil || first.Err() == nil {
			t.Errorf("%s: it has not ended after cancel", tt.name)
		}
	}
}

// valueKey is a key for values of these tests.
type valueKey struct{}

// The work that Cancel has ended stays ended, in each kind of context. The lock
// stays held, and its hooks are called in their order when it ends.
func TestCancel(t *testing.T) {
	t.Parallel()
	stop := errors.New("stop")
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	work := lock.Context()
	lock.Cancel(stop)
	late, cancelLate := lock.Bind(t.Context())
	defer cancelLate()
	for name, ctx := range map[string]context.Context{"Context": work, "late Context": lock.Context(), "late Bind": late} {
		if cause := context.Cause(ctx); cause != stop {
			t.Errorf("%s: cause %v", name, cause)
		}
	}
	if err := lock.Err(); err != nil {
		t.Errorf("Err: %v; the lock stays held", err)
	}
	var ends []error
	for _, name := range []string{"first", "second"} {
		lock.OnEnd(func(cause error) { ends = append(ends, errors.New(name), cause) })
	}
	unlock(t, lock)
	lock.OnEnd(func(cause error) { ends = append(ends, errors.New("late"), cause) })
	const want = "first\nsqllock: lock was released\nsecond\nsqllock: lock was released\nlate\nsqllock: lock was released"
	if got := errors.Join(ends...).Error(); got != want {
		t.Errorf("hooks: %s", got)
	}
}

// Of several locks in a context, FromContext finds the innermost that is asked
// for. Held asks each whether it lasts.
func TestLocksInAContext(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	name := sqllock.Namespace("report").Key("a")
	keys := []sqllock.Key{name, sqllock.ID(1), sqllock.ID(2)}
	var held []*sqllock.Lock
	ctx := t.Context()
	for i, key := range keys {
		lock := mustLock(t, locks, key)
		bound, cancel := lock.Bind(ctx)
		defer cancel()
		ctx, held = context.WithValue(bound, valueKey{}, i), append(held, lock)
	}
	for _, tt := range []struct {
		name string
		keys []sqllock.Key
		want *sqllock.Lock
	}{
		{"no keys", nil, held[2]},
		{"the innermost", keys[2:], held[2]},
		{"the outermost", keys[:1], held[0]},
		{"the inner of two", keys[:2], held[1]},
		{"one of them", []sqllock.Key{sqllock.ID(7), keys[1]}, held[1]},
		{"none", []sqllock.Key{sqllock.ID(7)}, nil},
		{"another key space", []sqllock.Key{sqllock.Pair(0, 1)}, nil},
		{"another name of the number", []sqllock.Key{sqllock.ID(name.Int64())}, nil},
	} {
		if got, ok := sqllock.FromContext(ctx, tt.keys...); got != tt.want || ok != (tt.want != nil) {
			t.Errorf("%s: got %p, %v; want %p", tt.name, got, ok, tt.want)
		}
		if len(tt.keys) == 1 && sqllock.Held(ctx, tt.keys[0]) != (tt.want != nil) {
			t.Errorf("%s: Held says otherwise", tt.name)
		}
	}
	if _, ok := sqllock.FromContext(t.Context()); ok || sqllock.Held(t.Context(), name) {
		t.Error("found a lock in a context without one")
	}
	unlock(t, held[1])
	if sqllock.Held(ctx, keys[1]) || !sqllock.Held(ctx, name) || !sqllock.Held(context.WithoutCancel(ctx), keys[2]) {
		t.Error("after the Unlock of the lock between them the outer and the inner one are held")
	}
}

// Two readers' locks of one key may be in one context. One is enough.
func TestHeld(t *testing.T) {
	t.Parallel()
	locks, key := sqllock.NewMemory(), sqllock.ID(1)
	outer, err := locks.TryRLock(t.Context(), key)
	inner, innerErr := locks.TryRLock(t.Context(), key)
	if err := errors.Join(err, innerErr); err != nil {
		t.Fatal(err)
	}
	between, unbind := outer.Bind(t.Context())
	defer unbind()
	ctx, unbindInner := inner.Bind(between)
	defer unbindInner()
	unlock(t, inner)
	if !sqllock.Held(ctx, key) {
		t.Error("the outer reader's lock is not held")
	}
	unlock(t, outer)
	if sqllock.Held(ctx, key) {
		t.Error("no reader is left, and the key is held")
	}
}

// The methods of a nil *Lock are safe to call, since a limiter that fails open
// returns one. Its contexts are those of a request without a lock, and so are
// those of a lock in a dry run.
func TestNilAndDetachedLock(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	outer, detached := mustLock(t, locks, sqllock.ID(1)), mustLock(t, locks, sqllock.ID(2))
	inside.Detach(detached)
	for name, lock := range map[string]*sqllock.Lock{"a nil lock": nil, "a detached lock": detached} {
		ctx, cancelOuter := outer.Bind(t.Context())
		inner, cancel := lock.Bind(ctx)
		if found, _ := sqllock.FromContext(inner); found != outer {
			t.Errorf("the context of %s carries %v, want the outer lock", name, found)
		}
		lock.Cancel(errors.New("cause"))
		if inner.Err() != nil {
			t.Errorf("the context of %s ended with it", name)
		}
		cancel()
		if inner.Err() == nil || ctx.Err() != nil {
			t.Errorf("cancel of %s ended the wrong context", name)
		}
		cancelOuter()
	}
	var lock *sqllock.Lock
	lock.OnEnd(func(error) { t.Error("OnEnd called") })
	lock.SetName("nobody's")
	unlock(t, lock)
	if lock.Err() != sqllock.ErrUnavailable || lock.Key() != (sqllock.Key{}) || lock.Context().Err() != nil {
		t.Errorf("Err %v, key %v, context %v", lock.Err(), lock.Key(), lock.Context().Err())
	}
}
