package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
)

// lockKey is the context key under which a boundContext gives its lock.
type lockKey struct{}

// A boundContext is a context that carries a lock and ends when the lock is
// lost. Its Err agrees with the lock's: it compares the clock at the call.
type boundContext struct {
	context.Context // made by WithCancelCause
	cancel          context.CancelCauseFunc
	lock            *Lock
}

func (c *boundContext) Value(key any) any {
	if key == (lockKey{}) {
		return c.lock
	}
	return c.Context.Value(key)
}

func (c *boundContext) Err() error {
	if c.Context.Err() == nil && c.lock.ended.Load() == endNot {
		_ = c.lock.Err() // ends this context if the lease has passed
	}
	return c.Context.Err()
}

// Context is a context for the lock's work: it has the values of the context
// that took the lock but not its cancellation or deadline, carries the lock,
// and ends with the lock, its [context.Cause] ErrLost or ErrReleased. That of a
// nil *Lock is context.Background(): where a lock may be nil, use Bind.
func (l *Lock) Context() context.Context {
	if l == nil {
		return context.Background()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.work == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
		l.work = &boundContext{inner, cancel, l}
		if cause := cmp.Or(l.cause, l.endCause); cause != nil {
			cancel(cause)
		}
	}
	return l.work
}

// Bind is ctx with the lock in it, and ended by the lock's loss, with cause
// ErrLost, if that comes first. To give the lock back does not end it, so that
// a request may go on after it has unlocked early. The caller calls cancel when
// the work is done, as with context.WithCancel. Without a lock, that is on a nil
// *Lock or after DetachContexts, it is context.WithCancel: a lock that ctx
// carries stays.
func (l *Lock) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	if l == nil || l.detached.Load() {
		return context.WithCancel(ctx)
	}
	inner, end := context.WithCancelCause(ctx)
	b := &boundContext{inner, end, l}
	l.mu.Lock()
	cause := l.cause
	if cause == nil {
		l.bound = append(l.bound, b)
	}
	l.mu.Unlock()
	if cause != nil {
		end(cause)
	}
	return b, func() {
		l.unbind(b)
		end(context.Canceled)
	}
}

func (l *Lock) unbind(b *boundContext) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.bound, b); i >= 0 {
		l.bound = slices.Delete(l.bound, i, i+1)
	}
}

// DetachContexts makes Bind ignore the lock from now on: what it gives neither
// carries the lock nor ends with it. A limiter in a dry run takes locks that no
// request may depend on.
func (l *Lock) DetachContexts() {
	if l != nil {
		l.detached.Store(true)
	}
}

// FromContext is the lock that ctx carries: in a context of [Lock.Bind] or
// [Lock.Context], and so in a handler behind the middleware of httpmw or grpcmw.
func FromContext(ctx context.Context) (*Lock, bool) {
	l, ok := ctx.Value(lockKey{}).(*Lock)
	return l, ok
}

// TxFromContext is the transaction on which a [TxLocker] holds the lock that
// ctx carries. Work done in it and the lock end together when it is committed;
// Unlock rolls back what is not.
func TxFromContext(ctx context.Context) (*sql.Tx, bool) {
	l, ok := FromContext(ctx)
	if !ok || l.tx == nil {
		return nil, false
	}
	return l.tx, true
}
