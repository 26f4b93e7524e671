package rpclimit

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A streamContext is the context of a stream whose locks may come after the
// handler has taken the context. It carries the locks once there are any, and
// ends on the loss of one.
type streamContext struct {
	context.Context // the stream's, with a cancel of its own
	cancel          context.CancelCauseFunc
	bound           atomic.Pointer[boundLocks] // nil until there are locks
}

// boundLocks are locks with the context that their Bind gave.
type boundLocks struct {
	locks sqllock.Locks
	ctx   context.Context
}

func newStreamContext(parent context.Context) *streamContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &streamContext{Context: ctx, cancel: cancel}
}

// carry binds c to locks, each of which may be nil. It returns those that are
// in c now. The lock of a dry run is not, and c does not depend on it. unbind
// undoes carry.
func (c *streamContext) carry(locks sqllock.Locks) (carried sqllock.Locks, unbind func()) {
	ctx, cancel := locks.Bind(c.Context)
	c.bound.Store(&boundLocks{locks, ctx})
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	for _, lock := range locks {
		if lock == nil {
			continue
		}
		if bound, ok := sqllock.FromContext(ctx, lock.Key()); ok && bound == lock {
			carried = append(carried, lock)
		}
	}
	return carried, func() {
		stop()
		cancel()
	}
}

// Err agrees with the context of Bind, which compares the clock at each call.
func (c *streamContext) Err() error {
	if b := c.bound.Load(); b != nil && b.ctx.Err() != nil {
		c.cancel(context.Cause(b.ctx))
	}
	return c.Context.Err()
}

// Value finds the locks in the context of Bind, and everything else in that of
// c. context.Cause and the contexts made from c look up their internals by
// Value, too.
func (c *streamContext) Value(key any) any {
	if b := c.bound.Load(); b != nil {
		if lock, ok := b.ctx.Value(key).(*sqllock.Lock); ok && slices.Contains(b.locks, lock) {
			return lock
		}
	}
	return c.Context.Value(key)
}
