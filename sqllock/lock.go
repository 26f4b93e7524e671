package sqllock

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// A Lock is a key that a caller holds. A [Locker] returns it, and Unlock
// releases it. The zero value is not usable.
//
// Its methods are safe for concurrent use. They accept a nil *Lock, which a
// limiter hands out when it admits a request although the database is away.
// Then Unlock does nothing, Err returns ErrUnavailable, and Bind and Context
// return contexts without a lock.
//
// Invariant: a lock ends once. From then on hold says how.
type Lock struct {
	hold keytable.Hold
	key  Key
	ctx  context.Context // of the call that took the lock: its values
	home *home
	tx   *txHolder // of a TxLocker's lock; else nil

	detachable // Bind ignores the lock once it is detached

	mu       sync.Mutex // protects what follows; never held while calling out
	finished bool       // Unlock has its result
	more     *attached  // nil until needed: many locks are taken and given back, and that is all
}

// attached is what few locks have. It is a second allocation.
type attached struct {
	token *dialect.Token // for Fence; nil until it is drawn
	name  string         // for people
	stack *stackName     // of locks that Locks.Bind has bound together
	cause error          // why Bind's contexts ended: a loss, or Cancel
	work  *lockContext   // of Context
	bound []*lockContext // made by Bind and not cancelled yet
	hooks []func(cause error)
	one   struct { // memory for the first of each: most locks have one
		bound [1]*lockContext
		hooks [1]func(cause error)
	}

	result error         // of Unlock
	done   chan struct{} // closed when finished; made by who waits for it
}

// detachable lets package ratelimit call [inside.Detach].
type detachable = inside.Detachable

// A home is what the locks of one locker have in common.
type home struct {
	table   *keytable.Table
	session *session.Session // nil unless the locker is a Session
	late    time.Duration    // how long a try and Unlock wait; not set for a Session and a Memory
	onLate  func()           // called then; may be nil
}

// newHold makes the hold of a lock. It is a keytable.Config's.
func newHold() *keytable.Hold {
	l := new(Lock)
	l.hold.Holder = (*holder)(l)
	return &l.hold
}

// lockOf returns the lock of h, which a call with ctx has acquired as key.
func (hm *home) lockOf(ctx context.Context, h *keytable.Hold, key Key) *Lock {
	l := (*Lock)(h.Holder.(*holder))
	l.ctx, l.key, l.home = ctx, key, hm
	return l
}

// attach returns what is attached to l. l.mu is held.
func (l *Lock) attach() *attached {
	if l.more == nil {
		l.more = new(attached)
		l.more.bound, l.more.hooks = l.more.one.bound[:0], l.more.one.hooks[:0]
	}
	return l.more
}

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
	switch l.hold.Ended() {
	case keytable.Released:
		return ErrReleased
	case keytable.Lost, keytable.Closed:
		return ErrLost
	}
	if life := l.hold.Owner().Life; life != nil && life.Expired() {
		life.LoseLease()
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
	if l.end() {
		defer func() { // also if a hook panics
			var result [1]error
			err = l.finish(l.home.table.Release(result[:0], &l.hold)[0])
		}()
		l.endContexts(keytable.Released)
		l.callHooks(keytable.Released)
		return nil
	}
	if l.hold.Ended() != keytable.Released {
		return ErrLost
	}
	return l.wait()
}

// end ends the lock for Unlock, and reports whether it had not ended. It ends a
// lock whose lease has passed as lost.
func (l *Lock) end() bool {
	if life := l.hold.Owner().Life; life != nil && l.hold.Ended() == keytable.NotEnded && life.Over() {
		life.LoseLease()
	}
	return l.hold.End(keytable.Released)
}

// finish stores the result of Unlock for callers that call it again.
func (l *Lock) finish(result error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finished = true
	if result != nil {
		l.attach().result = result
	}
	if l.more != nil && l.more.done != nil {
		close(l.more.done)
	}
	return result
}

// wait returns the result of the Unlock that another call has begun.
func (l *Lock) wait() error {
	l.mu.Lock()
	more := l.attach()
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

// Err is the error of a try, or of an Unlock, that has waited for late.
func (hm *home) Err() error {
	if hm.onLate != nil {
		hm.onLate()
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, hm.late)
}

// endCauses are the causes for contexts and hooks.
var endCauses = [...]error{keytable.Released: ErrReleased, keytable.Lost: ErrLost, keytable.Closed: ErrClosed}

// A holder is a Lock as the key table sees it. It implements keytable.Holder.
type holder Lock

func (h *holder) EndContexts(how keytable.End) { (*Lock)(h).endContexts(how) }
func (h *holder) CallHooks(how keytable.End)   { (*Lock)(h).callHooks(how) }
func (h *holder) Name() string                 { return (*Lock)(h).name() }

// endContexts ends contexts of l, which has ended. A lock given back early
// leaves its request's contexts alone.
func (l *Lock) endContexts(how keytable.End) {
	l.mu.Lock()
	more := l.more
	if more == nil && how == keytable.Released {
		l.mu.Unlock()
		return
	}
	more = l.attach()
	work, bound := more.work, []*lockContext(nil)
	if how != keytable.Released {
		more.cause = cmp.Or(more.cause, endCauses[how])
		bound, more.bound = more.bound, nil
	}
	l.mu.Unlock()
	if work != nil {
		work.cancel(endCauses[how])
	}
	for _, c := range bound {
		c.cancel(endCauses[how])
	}
}

// callHooks calls the functions of OnEnd.
func (l *Lock) callHooks(how keytable.End) {
	l.mu.Lock()
	var hooks []func(cause error)
	if l.more != nil {
		hooks, l.more.hooks = l.more.hooks, nil
	}
	l.mu.Unlock()
	for _, hook := range hooks {
		hook(endCauses[how])
	}
}

// SetName gives the lock a name for people. A Session with [WithRegistry]
// writes it down with each heartbeat. The package never sets a name by itself,
// because a name may be personal data and whoever reads the table sees it. A
// name is cut after 200 bytes. Of several readers of a key one name is shown.
//
// Locks that [Locks.Bind] has bound together, such as those of a handler behind
// several limits, share the name that was set last. A lock that was given a name
// of its own keeps it.
func (l *Lock) SetName(name string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	more := l.attach()
	more.name = name
	if more.stack != nil {
		more.stack.Store(&name)
	}
}

// A stackName is the name of those locks of a stack that have none of their own.
type stackName = atomic.Pointer[string]

// name returns the name of l, or "".
func (l *Lock) name() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more == nil {
		return ""
	}
	if l.more.name == "" && l.more.stack != nil {
		if shared := l.more.stack.Load(); shared != nil {
			return *shared
		}
	}
	return l.more.name
}
