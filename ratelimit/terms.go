package ratelimit

import (
	"context"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A termsContext has the terms of one call to a Locker. The lock keeps the
// context of its call. So the context forgets the terms when the call has
// ended: they must not apply to what the holder of the lock asks for.
type termsContext struct {
	context.Context // without the terms
	with            context.Context
	over            atomic.Bool
}

// withTerms returns ctx with t, until done is called.
func withTerms(ctx context.Context, t waiting.Terms) (_ context.Context, done func()) {
	c := &termsContext{Context: ctx, with: waiting.WithTerms(ctx, t)}
	return c, func() { c.over.Store(true) }
}

func (c *termsContext) Value(key any) any {
	if c.over.Load() {
		return c.Context.Value(key)
	}
	return c.with.Value(key)
}
