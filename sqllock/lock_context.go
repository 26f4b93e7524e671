package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"sync/atomic"
	"time"
)

// lockKey is the context key under which a boundContext gives its lock.
type lockKey struct{}

// oneOfKeys is the context key, by its address, under which a boundContext gives
// its lock if that is a lock of one of these keys.
type oneOfKeys []Key

// A boundContext is a context that carries a lock and ends when the lock is lost.
// Its Err agrees with the lock's: it compares the clock at the call.
//
// What it takes to end it is made when a caller first waits for the end or asks
// for the cause. Most requests end before that.
//
// Invariant: whatever package context finds out about a boundContext by its
// methods, it finds out about the boundContext, and never about its parent alone.
// So context.Cause reports the loss of the lock, and a child context ends with it,
// while the parent lives. Value keeps this: see cancelKey.
type boundContext struct {
	parent context.Context
	lock   *Lock
	state  atomic.Pointer[contextState] // nil: no caller has asked, and it has not ended before its parent
}

// A contextState is one of two things: an end that no caller has waited for, with
// its cause, or, for good, a context that ends.
type contextState struct {
	cause error

	context.Context // nil, or made by WithCancelCause
	end             context.CancelCauseFunc
}

// cancelKey is the key under which package context looks for what ends a context,
// and so for its cause and its children. A boundContext must not answer that
// question with its parent.
//
// The key is private to package context, so it is learnt: context.Cause asks for
// it. If Cause asks for no key or for several, cancelKey is nil. Then a
// boundContext lets the context that ends answer for every key that it does not
// know. That is right for any key, and dearer.
var cancelKey = learnCancelKey()

func learnCancelKey() any {
	ended, cancel := context.WithCancel(context.Background())
	cancel() // Cause need not ask while nothing has ended
	r := &keyRecorder{Context: ended}
	_ = context.Cause(r)
	if len(r.keys) != 1 {
		return nil
	}
	return r.keys[0]
}

// A keyRecorder is a context that records the keys that it is asked for.
type keyRecorder struct {
	context.Context
	keys []any
}

func (r *keyRecorder) Value(key any) any {
	r.keys = append(r.keys, key)
	return nil
}

// awaited is the context that ends, made if it was not there.
func (c *boundContext) awaited() *contextState {
	for {
		old := c.state.Load()
		if old != nil && old.Context != nil {
			return old
		}
		made := new(contextState)
		if old == nil {
			made.Context, made.end = context.WithCancelCause(c.parent) //nolint:fatcontext // each is made anew
		} else { // its parent may have ended since
			made.Context, made.end = context.WithCancelCause(context.WithoutCancel(c.parent))
			made.end(old.cause)
		}
		if c.state.CompareAndSwap(old, made) {
			return made
		}
		made.end(context.Canceled)
	}
}

// unawaited is the state of most contexts in the end.
var unawaited = &contextState{cause: context.Canceled}

// cancel ends c, unless it has ended before.
func (c *boundContext) cancel(cause error) {
	ended := unawaited
	if cause != context.Canceled {
		ended = &contextState{cause: cause}
	}
	if c.state.Load() == nil && c.parent.Err() == nil && c.state.CompareAndSwap(nil, ended) {
		return
	}
	c.awaited().end(cause)
}

func (c *boundContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }
func (c *boundContext) Done() <-chan struct{}       { return c.awaited().Done() }

func (c *boundContext) Err() error {
	if c.lock.ended.Load() == endNot {
		_ = c.lock.Err() // ends this context if the lease has passed
	}
	switch state := c.state.Load(); {
	case state == nil && c.parent.Err() == nil:
		return nil
	case state != nil && state.Context == nil:
		return context.Canceled
	}
	return c.awaited().Err()
}

func (c *boundContext) Value(key any) any { return c.value(key, cancelKey) }

// value is Value where package context looks for ends under the key cancel. It is
// right for nil, too.
func (c *boundContext) value(key, cancel any) any {
	switch key := key.(type) {
	case lockKey:
		return c.lock
	case carrierKey:
		return c
	case *oneOfKeys:
		if slices.Contains(*key, c.lock.key) {
			return c.lock
		}
	}
	if cancel == nil || key == cancel {
		return c.awaited().Value(key)
	}
	return c.parent.Value(key)
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
