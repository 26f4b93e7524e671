package sqllock

import (
	"cmp"
	"context"
	"slices"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
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
	a := l.attached()
	defer a.mu.Unlock()
	if a.work == nil {
		a.work = newLockContext(context.WithoutCancel(l.ctx), l)
		if cause := cmp.Or(a.cause, endCauses[l.hold.Ended()]); cause != nil {
			a.work.cancel(cause)
		}
	}
	return a.work
}

// Bind returns ctx with the lock in it. The context ends when ctx ends or when
// the lock is lost, with the cause ErrLost or ErrClosed. Unlock does not end
// it, so a request may go on after it has released its lock early.
//
// The caller must call cancel when the work is done, as with
// context.WithCancel. On a nil *Lock, and on that of a Limiter in a dry run, Bind
// is context.WithCancel, and a lock that ctx carries stays.
func (l *Lock) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	if l == nil || inside.IsDetached(&l.detachable) {
		return context.WithCancel(ctx)
	}
	c := newLockContext(ctx, l)
	a := l.attached()
	cause := a.cause
	if how := l.hold.Ended(); cause == nil && how != keytable.Released {
		cause = endCauses[how]
	}
	if cause == nil {
		a.bound = append(a.bound, c)
	}
	a.mu.Unlock()
	if cause != nil {
		c.cancel(cause)
	}
	return c, c.unbind
}

// A lockContext is a context that carries a lock and ends when the lock is lost.
type lockContext struct {
	context.Context // of context.WithCancelCause
	cancel          context.CancelCauseFunc
	parent          context.Context
	lock            *Lock
}

func newLockContext(parent context.Context, l *Lock) *lockContext {
	ctx, cancel := context.WithCancelCause(parent)
	return &lockContext{ctx, cancel, parent, l}
}

// unbind is the cancel function of Bind.
func (c *lockContext) unbind() {
	l := c.lock
	a := l.attached()
	if i := slices.Index(a.bound, c); i >= 0 {
		a.bound = slices.Delete(a.bound, i, i+1)
	}
	a.mu.Unlock()
	c.cancel(context.Canceled)
}

// Err checks the lease by the clock, so it reports a loss before any timer has
// fired.
func (c *lockContext) Err() error {
	if c.Context.Err() == nil && c.lock.Err() == ErrLost { //nolint:errorlint // Err returns it as it is
		how := c.lock.hold.Ended()
		if how == keytable.NotEnded { // another goroutine is about to end it
			how = keytable.Lost
		}
		c.lock.endContexts(how)
	}
	return c.Context.Err()
}

// carrierKey is the context key under which a lockContext returns itself.
type carrierKey struct{}

func (c *lockContext) Value(key any) any {
	if key == (carrierKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// carrier returns the innermost context in ctx that carries a lock, or nil.
func carrier(ctx context.Context) *lockContext {
	c, _ := ctx.Value(carrierKey{}).(*lockContext)
	return c
}

// CarriedLock returns the lock of c. It is for internal/rpclimit, whose contexts
// get their locks after their children were made.
func (c *lockContext) CarriedLock() *Lock { return c.lock }

// FromContext returns the lock that ctx carries, and whether there is one. A
// context of [Lock.Bind] or [Lock.Context] carries one, and so does that of a
// handler behind httpmw or grpcmw.
//
// If ctx carries several locks, FromContext returns the innermost one, which
// was bound last. With keys it returns the innermost lock of one of those keys.
func FromContext(ctx context.Context, keys ...Key) (*Lock, bool) {
	for c := carrier(ctx); c != nil; c = carrier(c.parent) {
		if len(keys) == 0 || slices.Contains(keys, c.lock.key) {
			return c.lock, true
		}
	}
	return nil, false
}

// Held reports whether ctx carries a lock of key that is still held. It is the
// question of a function that may be called with the lock or without it, since
// locks are not re-entrant:
//
//	if !sqllock.Held(ctx, key) {
//		return sqllock.Do(ctx, locks, key, rebuild)
//	}
//	return rebuild(ctx)
//
// It is about the lock in the context, not about the database: another caller
// may hold key while Held is false. A lock that was released or lost does not
// count, nor does one of another namespace with its number. A reader's lock
// counts, so true allows the holder to write only if the code takes no readers'
// locks of key. ctx carries a lock as in [FromContext]. Held asks no database.
func Held(ctx context.Context, key Key) bool {
	for c := carrier(ctx); c != nil; c = carrier(c.parent) { // of two readers' locks the outer one may live on
		if c.lock.key == key && c.lock.Err() == nil {
			return true
		}
	}
	return false
}

// OnEnd calls f once when the lock ends. The cause is ErrReleased, ErrLost, or
// ErrClosed when its Session was closed. If the lock has ended already, f is
// called at once. On a nil *Lock OnEnd does nothing.
//
// f runs in the goroutine that ends the lock: that of the caller of Unlock,
// before the key is released, or one of the Session. f must not block, must not
// call Unlock, and must not panic on a loss.
func (l *Lock) OnEnd(f func(cause error)) {
	if l == nil {
		return
	}
	a := l.attached()
	how := l.hold.Ended()
	if how == keytable.NotEnded {
		a.hooks = append(a.hooks, f)
	}
	a.mu.Unlock()
	if how != keytable.NotEnded {
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
	a := l.attached()
	a.cause = cmp.Or(a.cause, cause)
	contexts := a.bound
	a.bound = nil
	if a.work != nil {
		contexts = append(contexts, a.work)
	}
	a.mu.Unlock()
	for _, b := range contexts {
		b.cancel(cause)
	}
}
