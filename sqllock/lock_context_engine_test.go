package sqllock

import (
	"context"
	"slices"
	"testing"
	"time"
)

// Package context asks for cancelKey, and for no other key, when it looks for
// what ends a context. If this test fails, a new version of Go does that in
// another way. Check then that a bound context still reports its own cause.
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
