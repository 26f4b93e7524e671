package sqllock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

type parentKey struct{}

// valueFunc is a context with a Value of its own.
type valueFunc struct {
	context.Context
	value func(key any) any
}

func (c valueFunc) Value(key any) any { return c.value(key) }

// Package context asks for cancelKey, and for no other key, when it looks for
// what ends a context. If this test fails, a new version of Go does that in
// another way. Check then that boundContext.Value still answers for itself.
func TestCancelKey(t *testing.T) {
	if cancelKey == nil {
		t.Error("context.Cause asks for no key or for several: bound contexts are dearer than they need be")
	}
	looks := map[string]func(ctx context.Context){
		"Cause":            func(ctx context.Context) { _ = context.Cause(ctx) },
		"WithCancel":       func(ctx context.Context) { _, cancel := context.WithCancel(ctx); cancel() },
		"WithCancelCause":  func(ctx context.Context) { _, cancel := context.WithCancelCause(ctx); cancel(nil) },
		"WithTimeout":      func(ctx context.Context) { _, cancel := context.WithTimeout(ctx, time.Hour); cancel() },
		"AfterFunc":        func(ctx context.Context) { context.AfterFunc(ctx, func() {})() },
		"Cause of a value": func(ctx context.Context) { _ = context.Cause(context.WithValue(ctx, lockKey{}, 1)) },
		"a child's child": func(ctx context.Context) {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			_, c := context.WithCancel(child)
			c()
		},
		"a child's timeout": func(ctx context.Context) {
			child := context.WithValue(ctx, lockKey{}, 1)
			_, c := context.WithTimeout(child, time.Hour)
			c()
		},
	}
	for name, look := range looks {
		parent, cancel := context.WithCancel(t.Context())
		alive := &keyRecorder{Context: parent}
		look(alive)
		keys := slices.Clone(alive.keys) // later a goroutine of package context may ask alive again
		cancel()
		over := &keyRecorder{Context: parent}
		look(over)
		keys = append(keys, over.keys...)
		if len(keys) == 0 {
			t.Errorf("%s asks for no key", name)
		}
		for _, key := range keys {
			if key != cancelKey {
				t.Errorf("%s asks for a key of type %T, which context.Cause does not", name, key)
			}
		}
	}
}

// A bound context reports its own end and not that of its parent, whether
// cancelKey is known or not. With a wrong key it would report its parent's end.
func TestBoundContextAnswersForItself(t *testing.T) {
	tests := []struct {
		name  string
		key   any
		right bool
	}{
		{"the key is known", cancelKey, true},
		{"no key is known", nil, true},
		{"the key is wrong", new(int), false},
	}
	for _, tt := range tests {
		m := NewMemory()
		lock, err := m.TryLock(t.Context(), ID(1))
		if err != nil {
			t.Fatal(err)
		}
		parent, cancelParent := context.WithCancel(context.WithValue(t.Context(), parentKey{}, "value"))
		bound, unbind := lock.Bind(parent)
		b := bound.(*boundContext)
		ctx := valueFunc{b, func(key any) any { return b.value(key, tt.key) }}
		m.Lose()

		if right := errors.Is(context.Cause(ctx), ErrLost); right != tt.right {
			t.Errorf("%s: Cause is %v", tt.name, context.Cause(ctx))
		}
		child, cancel := context.WithCancel(ctx)
		if tt.right && !errors.Is(context.Cause(child), ErrLost) {
			t.Errorf("%s: Cause of a child is %v", tt.name, context.Cause(child))
		}
		if got, ok := FromContext(child); !ok || got != lock {
			t.Errorf("%s: the context does not carry its lock", tt.name)
		}
		if ctx.Value(parentKey{}) != "value" {
			t.Errorf("%s: the value of its parent is gone", tt.name)
		}
		cancel()
		unbind()
		cancelParent()
	}
}
