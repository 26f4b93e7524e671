package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Lock is a key held. It is made by a [Locker] and given back with Unlock.
//
// Its methods may be called at once from several goroutines. Those of a nil
// *Lock are safe: Unlock does nothing, Err is ErrUnavailable, Bind and Context
// give contexts without a lock. A limiter that admits although the database is
// away hands one out.
type Lock struct {
	key   Key
	ctx   context.Context // of the call that took the lock: its values
	home  home
	life  lifeline  // of a Session's lock: its connection; else nil
	state *keyState // its place in the table
	tx    *sql.Tx   // of a TxLocker's lock; else nil

	shared bool // it is one of several readers'

	ended    atomic.Uint32 // endNot until the lock ends, then how; set once, under mu
	detached atomic.Bool   // Bind ignores the lock

	mu       sync.Mutex // protects what follows; never held while calling out
	finished bool       // Unlock has its result
	more     *attached  // nil until needed: many locks are taken and given back, and that is all
}

// attached is what hangs on a lock: contexts, hooks, and who waits for its end.
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

func (l *Lock) attachLocked() *attached {
	if l.more == nil {
		l.more = new(attached)
	}
	return l.more
}

// home is what a Lock goes back to.
type home interface {
	// unlock gives l back, within a bound. It is called once, after l ended
	// with ErrReleased.
	unlock(l *Lock) error
}

// A lifeline is what a Session's lock lives on: a connection and its lease.
type lifeline interface {
	// expired reports whether the lock is no longer certainly held.
	expired() bool

	// late is expired by the clock that is cheap to read. It may miss the time
	// for which the system was suspended.
	late() bool

	// loseLease ends every lock that lives on it, because it has expired.
	loseLease()
}

// How a Lock ended.
const (
	endNot uint32 = iota
	endReleased
	endLost
	endClosed // lost, with its Session's Close
)

// endCauses is why, for contexts and hooks.
var endCauses = [...]error{endReleased: ErrReleased, endLost: ErrLost, endClosed: ErrClosed}

// Key is the key that is locked.
func (l *Lock) Key() Key {
	if l == nil {
		return Key{}
	}
	return l.key
}

// Err is nil while the lock is certainly held, ErrLost once it may not be (also when its Session was closed), and
// ErrReleased after Unlock.
//
// A Session's lock decides by the clock at the call: a process that was frozen
// past its lease sees ErrLost before any timer has fired. Call it right before
// an effect that must not happen without the lock. A lock of OnConn or PerTx
// is nil here until one of its calls has shown that the connection is gone.
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
		l.expire()
		return ErrLost
	}
	return nil
}

// Unlock gives the key back. It takes no context, so that the end of a request
// cannot keep it from doing so, and waits about a second at the most.
//
// It returns nil, or ErrLost if the lock had been lost before, or
// ErrUnavailable if the database did not answer in time: the key then stays
// reserved in this process until the database has answered or the session has
// ended, and needs no more care. Called again it returns the same.
func (l *Lock) Unlock() (err error) {
	if l == nil {
		return nil
	}
	if l.life != nil && l.life.late() && l.ended.Load() == endNot {
		l.expire()
	}
	if l.ended.Load() == endNot {
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

// expire ends a lock whose lease has passed.
func (l *Lock) expire() {
	l.life.loseLease()
	l.endAs(endLost) // it may be that another goroutine is about to
}

// finish stores the result of Unlock for those who call it again.
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

// wait is the result of the Unlock that another call began.
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

// endAs ends the lock as lost, unless it has ended before.
func (l *Lock) endAs(how uint32) {
	if e, ok := l.end(how); ok {
		e.announce()
	}
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
