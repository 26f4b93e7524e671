package sqllock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// A boundContext is a context that carries a lock and ends when the lock is
// lost. Its Err agrees with the lock's: it compares the clock at the call. If the
// lock was lost, Err ends the context.
//
// What it takes to end it is made when a caller first waits for the end or asks
// for the cause. Most requests end before that.
//
// Invariant: whatever package context finds out about a boundContext by its
// methods, it finds out about the boundContext, and never about its parent
// alone. So context.Cause reports the loss of the lock, and a child context
// ends with it, while the parent lives. Value keeps this: see cancelKey.
type boundContext struct {
	parent context.Context
	lock   *Lock
	state  atomic.Pointer[contextState] // nil: no caller has asked, and it has not ended before its parent
}

// A contextState is one of two things: an end that no caller has waited for,
// with its cause, or, for good, a context that ends.
type contextState struct {
	cause error

	context.Context // nil, or made by WithCancelCause
	end             context.CancelCauseFunc
}

// lockKey is the context key under which a boundContext returns its lock.
type lockKey struct{}

// oneOfKeys is the context key, by its address, under which a boundContext
// returns its lock if that is a lock of one of these keys.
type oneOfKeys []Key

// carrierKey is the context key under which a boundContext returns itself.
type carrierKey struct{}

// carrier returns the innermost context in ctx that carries a lock, or nil.
func carrier(ctx context.Context) *boundContext {
	c, _ := ctx.Value(carrierKey{}).(*boundContext)
	return c
}

// CarriedLock returns the lock of c. It is for internal/rpclimit, whose contexts
// get their locks after their children were made.
func (c *boundContext) CarriedLock() *Lock { return c.lock }

func (c *boundContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

// Done makes the context that ends, which most requests never need.
func (c *boundContext) Done() <-chan struct{} { return c.awaited().Done() }

// Err checks the lease by the clock, so it reports a loss before any timer has
// fired.
func (c *boundContext) Err() error {
	if c.lock.ended.Load() == endNot {
		_ = c.lock.Err() // ends this context if the lease has passed
	}
	c.endIfLost()
	parent := c.parent.Err() // ends the parent, and so this context, if a lock of the parent was lost
	switch state := c.state.Load(); {
	case state == nil && parent == nil:
		return nil
	case state != nil && state.Context == nil:
		return context.Canceled
	}
	return c.awaited().Err()
}

// endIfLost ends c if its lock was lost. The goroutine that ends the lock may
// not have come to its contexts yet.
func (c *boundContext) endIfLost() {
	if how := c.lock.ended.Load(); how != endLost && how != endClosed {
		return
	}
	if s := c.state.Load(); s != nil && (s.Context == nil || s.Context.Err() != nil) {
		return // it has ended
	}
	c.lock.mu.Lock()
	cause := c.lock.more.cause
	c.lock.mu.Unlock()
	c.cancel(cause)
}

func (c *boundContext) Value(key any) any { return c.value(key, cancelKey) }

// value is Value for a package context that looks for the end under the key
// cancel. It is right for nil, too.
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
		_ = c.Err()
		return c.awaited().Value(key)
	}
	return c.parent.Value(key)
}

// awaited returns the context that ends, and makes it if there is none.
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

// unawaited is the state in which most contexts end: cancelled by their caller,
// and no goroutine has waited for that.
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

// cancelKey is the key under which package context looks for what ends a
// context, and so for its cause and its children. A boundContext must not
// answer that question with its parent.
//
// The key is private to package context, so it is learnt: context.Cause asks
// for it. If Cause asks for no key or for several, cancelKey is nil. Then a
// boundContext lets the context that ends answer for every key that it does not
// know. That is right for any key, and dearer.
var cancelKey = learnCancelKey()

// learnCancelKey asks context.Cause for a context that records what it is
// asked.
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
