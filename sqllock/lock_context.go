package sqllock

import (
	"cmp"
	"context"
	"slices"
)

// What the holder of a lock works with: contexts that carry the lock and end
// with it, and hooks for its end.

// Context returns a context for the work of the lock. It has the values of the
// context that acquired the lock, without its cancellation and deadline. It
// carries the lock and ends with it. Its [context.Cause] is then ErrLost,
// ErrReleased or ErrClosed.
//
// Every call returns the same context. For a nil *Lock it is
// context.Background(), so use Bind where a lock may be nil.
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

// Bind returns ctx with the lock in it. The context ends when ctx ends or when
// the lock is lost, with the cause ErrLost or ErrClosed. Unlock does not end
// it, so a request may go on after it has released its lock early.
//
// The caller must call cancel when the work is done, as with
// context.WithCancel. On a nil *Lock, and after DetachContexts, Bind is
// context.WithCancel, and a lock that ctx carries stays.
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

// unbind is the cancel function of Bind.
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

// DetachContexts makes Bind ignore the lock from now on. It is for a limiter in
// a dry run, whose locks must not affect any request. Contexts that were bound
// before stay as they are.
func (l *Lock) DetachContexts() {
	if l != nil {
		l.detached.Store(true)
	}
}

// FromContext returns the lock that ctx carries, and whether there is one. A
// context of [Lock.Bind] or [Lock.Context] carries one, and so does that of a
// handler behind httpmw or grpcmw.
//
// If ctx carries several locks, FromContext returns the innermost one, which
// was bound last. With keys it returns the innermost lock of one of those keys.
func FromContext(ctx context.Context, keys ...Key) (*Lock, bool) {
	if len(keys) == 0 {
		l, ok := ctx.Value(lockKey{}).(*Lock)
		return l, ok
	}
	wanted := oneOfKeys(keys)
	l, ok := ctx.Value(&wanted).(*Lock)
	return l, ok
}

// OnEnd calls f once when the lock ends. The cause is ErrReleased, ErrLost, or
// ErrClosed when its Session was closed. If the lock has ended already, f is
// called at once. On a nil *Lock OnEnd does nothing.
//
// f runs in the goroutine that ends the lock: that of the caller of Unlock,
// before the key is released, or one of the Session. [Locks.Unlock] may call the
// hooks of its locks in several goroutines. f must not block, must not call
// Unlock, and must not panic on a loss.
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

// Cancel ends the contexts of Context and Bind with the given cause. The lock
// stays held until Unlock. So a policy can stop work that takes too long, and
// the next work starts only after it. Only the first cause counts. A nil cause
// is context.Canceled.
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
