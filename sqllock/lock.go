package sqllock

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Lock is a key that a caller holds. A [Locker] returns it, and Unlock
// releases it. The zero value is not usable.
//
// Its methods are safe for concurrent use. They accept a nil *Lock, which a
// limiter hands out when it admits a request although the database is away.
// Then Unlock does nothing, Err returns ErrUnavailable, and Bind and Context
// return contexts without a lock.
//
// Invariant: a lock ends once. From then on ended says how, and more holds no
// hook that has not been told.
type Lock struct {
	key   Key
	ctx   context.Context // of the call that took the lock: its values
	home  home
	life  lifeline  // of a Session's lock: its connection; else nil
	state *keyState // its place in the table
	tx    *txHolder // of a TxLocker's lock; else nil

	shared bool // it is one of several readers'

	ended    atomic.Uint32 // endNot until the lock ends, then how; set once, under mu
	detached atomic.Bool   // Bind ignores the lock

	mu       sync.Mutex // protects what follows; never held while calling out
	finished bool       // Unlock has its result
	more     *attached  // nil until needed: many locks are taken and given back, and that is all
}

// attached is what few locks have. It is a second allocation.
type attached struct {
	token *dialect.Token  // for Fence; nil until it is drawn
	name  string          // for people
	cause error           // why Bind's contexts ended: a loss, or Cancel
	work  *boundContext   // of Context
	bound []*boundContext // made by Bind and not cancelled yet
	first boundContext    // the first of them: most locks have one; it stays as long as the lock
	one   [1]*boundContext
	hook  func(cause error)   // the first of OnEnd: most locks have one at the most
	hooks []func(cause error) // the others

	result error         // of Unlock
	done   chan struct{} // closed when finished; made by who waits for it
}

// attachLocked returns what is attached to l. l.mu is held.
func (l *Lock) attachLocked() *attached {
	if l.more == nil {
		l.more = new(attached)
	}
	return l.more
}

// A home is what a Lock goes back to: the key table of its locker.
type home interface {
	// unlock releases l, within a bound. It is called once, after l has ended.
	unlock(l *Lock) error

	// unlockAll is unlock for several locks. It also finishes them, and joins
	// their errors.
	unlockAll(locks []*Lock) error
}

// A lifeline is what a Session's lock lives on: a connection and its lease.
type lifeline interface {
	// expired reports whether the lock is no longer certainly held.
	expired() bool

	// over is expired by a clock that is cheap to read. That clock may miss the
	// time for which the system was suspended.
	over() bool

	// loseLease ends every lock that lives on it, because it has expired. They
	// have ended when it returns, as lost or with the Close of their Session.
	loseLease()
}

// How a Lock ended.
const (
	endNot uint32 = iota
	endReleased
	endLost
	endClosed // lost, with its Session's Close
)

// endCauses are the causes for contexts and hooks.
var endCauses = [...]error{endReleased: ErrReleased, endLost: ErrLost, endClosed: ErrClosed}

// Key returns the key that is locked. That of a nil *Lock is the zero Key.
func (l *Lock) Key() Key {
	if l == nil {
		return Key{}
	}
	return l.key
}

// Err returns nil while the lock is certainly held. It returns ErrLost once the
// lock may be lost, and ErrReleased after Unlock. After the Close of its
// Session a lock is lost, too.
//
// A Session's lock compares the clock at each call. So a process that was
// frozen past its lease gets ErrLost before any timer has fired. Call Err right
// before an effect that must not happen without the lock.
//
// A lock of OnConn or PerTx returns nil until one of its calls has shown that
// the connection is gone.
func (l *Lock) Err() error {
	if l == nil {
		return ErrUnavailable
	}
	switch l.ended.Load() {
	case endReleased:
		return ErrReleased
	case endLost, endClosed:
		return ErrLost
	}
	if l.life != nil && l.life.expired() {
		l.life.loseLease()
		return ErrLost
	}
	return nil
}

// Unlock releases the key. It takes no context, so the end of a request cannot
// keep a lock from being released. It waits for at most about a second.
//
// It returns nil, or one of these errors:
//   - ErrLost: the lock was lost before.
//   - ErrUnavailable: the database did not respond in time. The key stays
//     reserved in this process until the database responds or the session ends.
//     The caller need not do anything.
//
// A second call returns the same.
func (l *Lock) Unlock() (err error) {
	if l == nil {
		return nil
	}
	if l.mayUnlock() {
		if e, ok := l.end(endReleased); ok {
			defer func() { err = l.finish(l.home.unlock(l)) }() // also if a hook panics
			e.announce()
			return nil
		}
	}
	if l.ended.Load() != endReleased {
		return ErrLost
	}
	return l.wait()
}

// mayUnlock reports whether the lock has not ended. It ends a lock whose lease
// has passed. If another goroutine ends it, mayUnlock waits for that.
func (l *Lock) mayUnlock() bool {
	if l.life != nil && l.life.over() && l.ended.Load() == endNot {
		l.life.loseLease()
	}
	return l.ended.Load() == endNot
}

// finish stores the result of Unlock for callers that call it again.
func (l *Lock) finish(result error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	if result != nil {
		l.attachLocked().result = result
	}
	if l.more != nil && l.more.done != nil {
		close(l.more.done)
	}
	return result
}

// wait returns the result of the Unlock that another call has begun.
func (l *Lock) wait() error {
	l.mu.Lock()
	more := l.attachLocked()
	if !l.finished && more.done == nil {
		more.done = make(chan struct{})
	}
	finished := l.finished
	l.mu.Unlock()
	if !finished {
		<-more.done
	}
	return more.result
}

// An ending is what must be told of the end of a lock, without l.mu.
type ending struct {
	cause error
	work  *boundContext
	bound []*boundContext
	hook  func(cause error)
	hooks []func(cause error)
}

// end ends the lock for its holder, unless it has ended before. If ok is true,
// the caller must announce e.
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

// endings are what must be told of locks that end together.
type endings []ending

// endAllLocked ends locks that end together. table.mu is held. A Session's
// connection is dead before the first lock ends, so Unlock of another lock waits
// for table.mu, and finds that lock lost. The caller announces the endings when it
// has released table.mu.
func endAllLocked(locks []*Lock, how uint32) endings {
	all := make(endings, 0, len(locks))
	for _, l := range locks {
		if e, ok := l.end(how); ok {
			all = append(all, e)
		}
	}
	return all
}

// announce ends all contexts, and then calls the hooks. A holder that is told
// of the end of one lock finds that the contexts of the others have ended.
func (all endings) announce() {
	for i := range all {
		all[i].endContexts()
	}
	for i := range all {
		all[i].callHooks()
	}
}

// announce ends the contexts, and then calls the hooks.
func (e *ending) announce() {
	e.endContexts()
	e.callHooks()
}

func (e *ending) endContexts() {
	if e.work != nil {
		e.work.cancel(e.cause)
	}
	for _, b := range e.bound {
		b.cancel(e.cause)
	}
}

func (e *ending) callHooks() {
	if e.hook != nil {
		e.hook(e.cause)
	}
	for _, hook := range e.hooks {
		hook(e.cause)
	}
}
