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

	mu    sync.Mutex     // protects what follows, down to hooks; never held while calling out
	drawn *dialect.Token // for Fence; nil before
	name  *sharedName    // nil: none
	cause error          // why Bind's contexts ended: a loss, or Cancel
	work  *lockContext   // of Context; nil until it is needed
	bound []*lockContext // made by Bind and not cancelled yet
	hooks []func(cause error)

	unlocked sync.WaitGroup // until Unlock has its result
	result   error          // of Unlock
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
	l.unlocked.Add(1)
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
	l.unlocked.Wait()
	return l.result
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
	l.result = result
	l.unlocked.Done()
	return result
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

// endContexts ends contexts of l, which has ended. A lock given back early
// leaves its request's contexts alone.
func (l *Lock) endContexts(how keytable.End) {
	l.mu.Lock()
	work, bound := l.work, []*lockContext(nil)
	if how != keytable.Released {
		l.cause = cmp.Or(l.cause, endCauses[how])
		bound, l.bound = l.bound, nil
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
	hooks := l.hooks
	l.hooks = nil
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.name = cmp.Or(l.name, s)
	return l.name
}

func (h *holder) Name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.name == nil || h.name.Load() == nil {
		return ""
	}
	return *h.name.Load()
}
