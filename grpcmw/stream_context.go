package grpcmw

import (
	"context"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A streamContext is the context of a stream whose lock may come after the
// handler has taken the context. It carries the lock once there is one, and
// ends on its loss.
type streamContext struct {
	context.Context // the stream's, with a cancel of its own
	cancel          context.CancelCauseFunc
	bound           atomic.Pointer[boundLock] // nil until there is a lock
}

// A boundLock is a lock with the context that its Bind gave.
type boundLock struct {
	lock *sqllock.Lock
	ctx  context.Context
}

func newStreamContext(parent context.Context) *streamContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &streamContext{Context: ctx, cancel: cancel}
}

// carry binds c to lock, which may be nil. carried reports whether lock is in c
// now. The lock of a dry run is not, and c does not depend on it. unbind undoes
// carry.
func (c *streamContext) carry(lock *sqllock.Lock) (carried bool, unbind func()) {
	ctx, cancel := lock.Bind(c.Context)
	c.bound.Store(&boundLock{lock, ctx})
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	bound, ok := sqllock.FromContext(ctx)
	return ok && bound == lock, func() {
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

// Value finds the lock in the context of Bind, and everything else in that of
// c. context.Cause and the contexts made from c look up their internals by
// Value, too.
func (c *streamContext) Value(key any) any {
	if b := c.bound.Load(); b != nil {
		if lock, ok := b.ctx.Value(key).(*sqllock.Lock); ok && lock == b.lock {
			return lock
		}
	}
	return c.Context.Value(key)
}
