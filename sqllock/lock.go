package sqllock

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

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
// add no lock.
type Lock struct {
	hold keytable.Hold // a lock ends once, and from then on hold says how
	key  Key
	ctx  context.Context // of the call that took the lock: its values
	home *home

	detachable // Bind ignores the lock once it is detached

	unlocked atomic.Bool              // Unlock has its result
	with     atomic.Pointer[attached] // nil: nothing
}

// An attached is what a caller has attached to its lock. Most locks have none.
// Whoever attaches something looks for the end of the lock after that, and
// whoever ends the lock looks for what is attached after that.
type attached struct {
	mu    sync.Mutex     // protects what follows; never held while calling out
	drawn *dialect.Token // for Fence; nil before
	name  *sharedName    // nil: none
	cause error          // why Bind's contexts ended: a loss, or Cancel
	work  *lockContext   // of Context; nil until it is needed
	bound []*lockContext // made by Bind and not cancelled yet
	hooks []func(cause error)

	result   error         // of Unlock
	unlocked chan struct{} // closed then; nil: no other Unlock waits
}

// attached returns what is attached to l, with its mu locked.
func (l *Lock) attached() *attached {
	a := l.with.Load()
	if a == nil {
		l.with.CompareAndSwap(nil, new(attached))
		a = l.with.Load()
	}
	a.mu.Lock()
	return a
}

// detachable lets package ratelimit call [inside.Detach].
type detachable = inside.Detachable

// A home is what the locks of one locker have in common.
type home struct {
	table   *keytable.Table
	session *session.Session // nil unless the locker is a Session
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
	switch {
	case l.end():
		defer func() { err = l.finish(l.home.table.Release(&l.hold)) }() // also if a hook panics
		l.endContexts(keytable.Released)
		l.callHooks(keytable.Released)
		return nil
	case l.hold.Ended() != keytable.Released:
		return ErrLost
	}
	return l.await()
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
	if result != nil {
		a := l.attached()
		a.result = result
		a.mu.Unlock()
	}
	l.unlocked.Store(true)
	if l.with.Load() != nil {
		a := l.attached()
		if a.unlocked != nil {
			close(a.unlocked)
		}
		a.mu.Unlock()
	}
	return result
}

// await returns the result of an Unlock that another call has begun.
func (l *Lock) await() error {
	a := l.attached()
	defer a.mu.Unlock()
	if !l.unlocked.Load() {
		if a.unlocked == nil {
			a.unlocked = make(chan struct{})
		}
		a.mu.Unlock()
		<-a.unlocked
		a.mu.Lock()
	}
	return a.result
}

// endCauses are the causes for contexts and hooks.
var endCauses = [...]error{keytable.Released: ErrReleased, keytable.Lost: ErrLost, keytable.Closed: ErrClosed}

// A holder is a Lock as the key table sees it. It implements keytable.Holder.
type holder Lock

func (h *holder) EndContexts(how keytable.End) { (*Lock)(h).endContexts(how) }
func (h *holder) CallHooks(how keytable.End)   { (*Lock)(h).callHooks(how) }

// endContexts ends contexts of l, which has ended. A lock given back early
// leaves its request's contexts alone.
func (l *Lock) endContexts(how keytable.End) {
	if l.with.Load() == nil {
		return
	}
	a := l.attached()
	work, bound := a.work, []*lockContext(nil)
	if how != keytable.Released {
		a.cause = cmp.Or(a.cause, endCauses[how])
		bound, a.bound = a.bound, nil
	}
	a.mu.Unlock()
	if work != nil {
		work.cancel(endCauses[how])
	}
	for _, c := range bound {
		c.cancel(endCauses[how])
	}
}

// callHooks calls the functions of OnEnd.
func (l *Lock) callHooks(how keytable.End) {
	if l.with.Load() == nil {
		return
	}
	a := l.attached()
	hooks := a.hooks
	a.hooks = nil
	a.mu.Unlock()
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
// several limits, share the name that was set last. A lock that had a name before
// keeps its own.
func (l *Lock) SetName(name string) {
	if l != nil {
		l.shareName(new(sharedName)).Store(&name)
	}
}

// A sharedName is the name of a lock, or of several.
type sharedName = atomic.Pointer[string]

// shareName gives l the name that is in s, unless it has one. It returns where
// the name of l is.
func (l *Lock) shareName(s *sharedName) *sharedName {
	a := l.attached()
	defer a.mu.Unlock()
	a.name = cmp.Or(a.name, s)
	return a.name
}

func (h *holder) Name() string {
	if h.with.Load() == nil {
		return ""
	}
	a := (*Lock)(h).attached()
	defer a.mu.Unlock()
	if a.name == nil || a.name.Load() == nil {
		return ""
	}
	return *a.name.Load()
}
