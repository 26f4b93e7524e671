package sqllock

import (
	"cmp"
	"context"
)

// An ending is whom the end of a lock is to be told to.
type ending struct {
	cause error
	work  *boundContext
	bound []*boundContext
	hook  func(cause error)
	hooks []func(cause error)
}

// end ends the lock for its holder, unless it has ended before. Whoever is
// told ok announces it.
func (l *Lock) end(how uint32) (e ending, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.Load() != endNot {
		return ending{}, false
	}
	l.ended.Store(how)
	more := l.more
	if how != endReleased { // a lock given back early leaves its request's contexts alone
		more = l.attachLocked()
		e.bound = more.bound
		more.cause = cmp.Or(more.cause, endCauses[how])
	}
	if more == nil {
		return e, true
	}
	e.cause, e.work, e.hook, e.hooks = endCauses[how], more.work, more.hook, more.hooks
	more.bound, more.hook, more.hooks = nil, nil, nil
	return e, true
}

// announce ends the contexts and calls the hooks.
func (e *ending) announce() {
	if e.work != nil {
		e.work.cancel(e.cause)
	}
	for _, b := range e.bound {
		b.cancel(e.cause)
	}
	if e.hook != nil {
		e.hook(e.cause)
	}
	for _, hook := range e.hooks {
		hook(e.cause)
	}
}

// endAs ends the lock as lost, unless it has ended before.
func (l *Lock) endAs(how uint32) {
	if e, ok := l.end(how); ok {
		e.announce()
	}
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
