package sqllock_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Held looks for a lock of the very key, in the whole context, and asks each
// whether it lasts.
func TestHeld(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	key, other := sqllock.Namespace("report").Key("a"), sqllock.Namespace("report").Key("b")
	lock, second := mustLock(t, locks, key), mustLock(t, locks, other)
	ctx, unbind := lock.Bind(t.Context())
	defer unbind()
	inner, unbindInner := second.Bind(ctx)
	defer unbindInner()
	number := sqllock.ID(key.Int64())
	for _, tt := range []struct {
		name string
		ctx  context.Context
		key  sqllock.Key
		want bool
	}{
		{"the lock of the context", ctx, key, true},
		{"a context below it", context.WithoutCancel(ctx), key, true},
		{"below another lock", inner, key, true},
		{"the inner lock", inner, other, true},
		{"a key that is locked, but not by this context", ctx, other, false},
		{"a context without a lock", t.Context(), key, false},
		{"another name of the same number", ctx, number, false},
		{"the context of the lock", lock.Context(), key, true},
	} {
		if got := sqllock.Held(tt.ctx, tt.key); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if sqllock.Held(inner, key) {
		t.Error("a lock that was released is held")
	}
	if !sqllock.Held(inner, other) {
		t.Error("the inner lock is not held after the outer one was released")
	}
}

// Two readers' locks of one key may be in one context. One is enough.
func TestHeldByTwoReaders(t *testing.T) {
	t.Parallel()
	locks, key := sqllock.NewMemory(), sqllock.ID(1)
	var read [2]*sqllock.Lock
	ctx := t.Context()
	for i := range read {
		lock, err := locks.TryRLock(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		read[i] = lock
		var unbind context.CancelFunc
		ctx, unbind = lock.Bind(ctx) //nolint:fatcontext // one in the other is what is tested
		defer unbind()
	}
	for _, inner := range []int{1, 0} {
		if !sqllock.Held(ctx, key) {
			t.Error("a reader's lock is not held")
		}
		if err := read[inner].Unlock(); err != nil {
			t.Fatal(err)
		}
	}
	if sqllock.Held(ctx, key) {
		t.Error("no reader is left, and the key is held")
	}
}

// A lock of a limiter in a dry run is in no context.
func TestHeldOfDetachedLock(t *testing.T) {
	t.Parallel()
	lock := mustLock(t, sqllock.NewMemory(), sqllock.ID(1))
	inside.Detach(lock)
	ctx, unbind := lock.Bind(t.Context())
	defer unbind()
	if sqllock.Held(ctx, sqllock.ID(1)) {
		t.Error("a lock in a dry run is held")
	}
}
