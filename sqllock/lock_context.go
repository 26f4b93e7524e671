package sqllock

import (
	"cmp"
	"context"
	"slices"
)

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
	more := l.attachLocked()
	if more.work == nil {
		more.work = &boundContext{parent: context.WithoutCancel(l.ctx), lock: l}
		if cause := cmp.Or(more.cause, endCauses[l.ended.Load()]); cause != nil {
			more.work.cancel(cause)
		}
	}
	return more.work
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
	l.mu.Lock()
	more := l.attachLocked()
	b := &more.first
	if b.lock != nil { // it is in use, or was
		b = new(boundContext)
	}
	b.parent, b.lock = ctx, l
	cause := more.cause
	if cause == nil {
		if more.bound == nil {
			more.bound = more.one[:0]
		}
		more.bound = append(more.bound, b)
	}
	l.mu.Unlock()
	if cause != nil {
		b.cancel(cause)
	}
	return b, b.unbind
}

// unbind is the cancel of Bind.
func (c *boundContext) unbind() {
	l := c.lock
	l.mu.Lock()
	bound := l.more.bound
	if i := slices.Index(bound, c); i >= 0 {
		l.more.bound = slices.Delete(bound, i, i+1)
	}
	l.mu.Unlock()
	c.cancel(context.Canceled)
}

// DetachContexts makes Bind ignore the lock from now on: what it gives neither
// carries the lock nor ends with it. A limiter in a dry run takes locks that no
// request may depend on.
func (l *Lock) DetachContexts() {
	if l != nil {
		l.detached.Store(true)
	}
}

// FromContext returns the lock that ctx carries. A context of [Lock.Bind] or
// [Lock.Context] carries one, and so does that of a handler behind the middleware
// of httpmw or grpcmw. If ctx carries several locks, FromContext returns the
// innermost, which was bound last. With keys it returns the innermost lock of one
// of those keys, and reports false if there is none.
func FromContext(ctx context.Context, keys ...Key) (*Lock, bool) {
	if len(keys) == 0 {
		l, ok := ctx.Value(lockKey{}).(*Lock)
		return l, ok
	}
	wanted := oneOfKeys(keys)
	l, ok := ctx.Value(&wanted).(*Lock)
	return l, ok
}

// OnEnd has f called once when the lock ends, with the cause: ErrReleased,
// ErrLost, or ErrClosed when its Session was closed. If it has ended already,
// f is called at once. f runs in the goroutine that ends the lock: the caller's
// of Unlock, before the key is given back (of [Locks.Unlock] one of its own), or the Session's. It must not block
// nor call Unlock, and must not panic on a loss.
func (l *Lock) OnEnd(f func(cause error)) {
	if l == nil {
		return
	}
	l.mu.Lock()
	how := l.ended.Load()
	if how == endNot {
		more := l.attachLocked()
		if more.hook == nil {
			more.hook = f
		} else {
			more.hooks = append(more.hooks, f)
		}
	}
	l.mu.Unlock()
	if how != endNot {
		f(endCauses[how])
	}
}

// Cancel ends the contexts of the lock's work, those of Context and Bind, with
// the given cause. The lock stays held until Unlock: so a policy can stop work
// that takes too long and still not let another begin beside it. Only the first
// cause counts; nil is context.Canceled.
func (l *Lock) Cancel(cause error) {
	if l == nil {
		return
	}
	if cause == nil {
		cause = context.Canceled
	}
	l.mu.Lock()
	more := l.attachLocked()
	if more.cause == nil {
		more.cause = cause
	}
	contexts := more.bound
	more.bound = nil
	if more.work != nil {
		contexts = append(contexts, more.work)
	}
	l.mu.Unlock()
	for _, b := range contexts {
		b.cancel(cause)
	}
}
