package rpclimit

import (
	"context"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/admission"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A streamContext is the context of a stream whose locks may come after the
// handler has taken the context. It carries the locks once there are any, and
// ends on the loss of one.
type streamContext struct {
	context.Context // the stream's, with a cancel of its own
	around          context.Context
	cancel          context.CancelCauseFunc
	bound           atomic.Pointer[context.Context] // what Bind of the locks gave; nil until there are locks
}

func newStreamContext(around context.Context) *streamContext {
	ctx, cancel := context.WithCancelCause(around)
	return &streamContext{Context: ctx, around: around, cancel: cancel}
}

// carry binds c to held. It returns what c carries now. The lock of a dry run is
// not in c, which does not depend on it. unbind undoes carry.
func (c *streamContext) carry(held admission.Held) (carried admission.Held, unbind func()) {
	ctx, cancel := held.Bind(c.Context)
	c.bound.Store(&ctx)
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	return held.CarriedBy(ctx), func() {
		stop()
		cancel()
	}
}

// Err agrees with the contexts of locks, which compare the clock at each call.
// Those are the context of Bind, and that of an interceptor around.
func (c *streamContext) Err() error {
	ended := c.around
	if bound := c.bound.Load(); bound != nil && ended.Err() == nil {
		ended = *bound
	}
	if ended.Err() != nil {
		c.cancel(context.Cause(ended))
	}
	return c.Context.Err()
}

// Value finds the locks in the context of Bind, and everything else in that of
// c. context.Cause and the contexts made from c look up their internals by
// Value, too.
func (c *streamContext) Value(key any) any {
	if bound := c.bound.Load(); bound != nil {
		if v, ok := (*bound).Value(key).(carrier); ok {
			return v
		}
	}
	return c.Context.Value(key)
}

// A carrier is the context under which package sqllock finds all locks that a
// context carries: [sqllock.Held] looks there.
type carrier interface{ CarriedLock() *sqllock.Lock }
