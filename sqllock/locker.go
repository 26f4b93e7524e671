package sqllock

import (
	"context"
	"errors"
	"sync"

	"github.com/latchkey-go/latchkey/internal/keytable"
)

// What all lockers have in common, and several locks as one.

// A Locker acquires locks. A service uses a [Session], or a shard.Locker over
// several. [ConnLocker] and [TxLocker] are for code that brings its own
// connection or pool, and [Memory] is for tests. All are safe for concurrent
// use.
//
// Locks are not re-entrant. A caller that requests a key which it holds itself
// is rejected. [Held] tells whether a context carries the lock of a key.
type Locker interface {
	// TryLock acquires key without waiting. It returns ErrHeld if another
	// caller holds key. ctx bounds the call, and the lock outlives it. The
	// caller must call Unlock.
	TryLock(ctx context.Context, key Key) (*Lock, error)

	// Lock waits for key until ctx ends. In one process the first to come is
	// the first to be served. If ctx ends, the error matches ctx.Err(), and
	// also ErrUnavailable if the database was away then.
	Lock(ctx context.Context, key Key) (*Lock, error)
}

// Do runs fn under the lock of key: TryLock, fn, Unlock. The context of fn is
// ctx with the lock in it, and ends when the lock is lost.
//
// Do returns the error of TryLock, or else that of fn, joined by ErrLost if the
// lock was lost before fn returned. The key becomes free when fn panics, too.
func Do(ctx context.Context, l Locker, key Key, fn func(context.Context) error) error {
	lock, err := l.TryLock(ctx, key)
	if err != nil {
		return err
	}
	return underLock(ctx, lock, fn)
}

// DoAll is [Do] for a set of keys: TryLockAll, fn, Unlock. The context of fn is
// ctx with all the locks in it, and ends when any of them is lost. The lock of
// one of the keys is FromContext(ctx, key).
//
// It returns the error of TryLockAll, or else that of fn, joined by ErrLost if
// a lock was lost before fn returned. The keys become free when fn panics, too.
//
// l is a [Session] or a [Memory].
func DoAll(ctx context.Context, l interface {
	TryLockAll(ctx context.Context, keys ...Key) (Locks, error)
}, keys []Key, fn func(context.Context) error,
) error {
	locks, err := l.TryLockAll(ctx, keys...)
	if err != nil {
		return err
	}
	return underLock(ctx, locks, fn)
}

// underLock runs fn with one lock or several, and releases them.
func underLock(ctx context.Context, held interface {
	Bind(ctx context.Context) (context.Context, context.CancelFunc)
	Unlock() error
}, fn func(context.Context) error,
) (err error) {
	bound, cancel := held.Bind(ctx)
	defer func() {
		cancel() // goroutines that fn has left behind stop before the key is free
		if unlockErr := held.Unlock(); errors.Is(unlockErr, ErrLost) {
			err = errors.Join(err, unlockErr)
		}
	}()
	return fn(bound)
}

// Locks are locks that were acquired together.
//
// Those of [Session.TryLockAll] and LockAll have one lock for each key, in the
// order of the keys' numbers. This order is the same for every caller, so use
// it to call [Fence] for all of them. Keys that are equal in the database have
// one lock. Those of ratelimit.AcquireAll have one lock for each level, in the
// order of the levels.
//
// Each lock can also be used and released separately. The methods are safe for
// concurrent use. Those of a nil Locks do nothing: there is no lock to lose.
type Locks []*Lock

// Err returns nil while all locks are certainly held, by [Lock.Err]. Otherwise
// it returns the error of the first that is not.
func (ls Locks) Err() error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Bind returns ctx with all locks in it, ended by the loss of any: [Lock.Bind]
// of each, one in the other. [FromContext] without keys returns the last of
// them.
func (ls Locks) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	var stack *stackName
	if len(ls) > 1 {
		stack = new(stackName)
	}
	return ls.bind(ctx, stack)
}

func (ls Locks) bind(ctx context.Context, stack *stackName) (bound context.Context, cancel context.CancelFunc) {
	if len(ls) == 0 {
		return context.WithCancel(ctx)
	}
	last := len(ls) - 1
	outer, cancelOuter := ls[:last].bind(ctx, stack)
	bound, unbind := ls[last].Bind(outer)
	if l := ls[last]; l != nil && stack != nil {
		l.mu.Lock()
		l.attach().stack = stack
		l.mu.Unlock()
	}
	return bound, func() { unbind(); cancelOuter() }
}

// Unlock releases all locks at the same time. It waits as long as [Lock.Unlock]
// does, and joins the errors of all. If a hook of OnEnd panics, all locks are
// released first, and then the panic goes on.
func (ls Locks) Unlock() (err error) {
	table := ls.table()
	if table == nil {
		return ls.unlockEach()
	}
	var (
		array [4]*Lock // most calls have a few locks: no allocation
		ended = array[:0]
		next  = 0
	)
	defer func() {
		err = errors.Join(err, unlockTogether(table, ended))
		if next < len(ls) { // a hook panics
			err = errors.Join(err, ls[next:].Unlock())
		}
	}()
	for i, l := range ls {
		switch next = i + 1; {
		case l == nil:
		case l.end():
			ended = append(ended, l)
			l.endContexts(keytable.Released)
			l.callHooks(keytable.Released)
		default:
			err = errors.Join(err, l.Unlock()) // it has ended before
		}
	}
	return err
}

// unlockTogether releases locks of table, which have ended, in one statement.
func unlockTogether(table *keytable.Table, locks []*Lock) error {
	if len(locks) == 0 {
		return nil
	}
	var (
		memory [4]error
		array  [4]*keytable.Hold
		holds  = array[:0]
		errs   []error
	)
	for _, l := range locks {
		holds = append(holds, &l.hold)
	}
	for i, err := range table.Release(memory[:0], holds...) {
		if locks[i].finish(err) != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// table returns the table of all locks, or nil if they have not the same one.
func (ls Locks) table() (same *keytable.Table) {
	for _, l := range ls {
		if l == nil {
			continue
		}
		if same != nil && l.home.table != same {
			return nil
		}
		same = l.home.table
	}
	return same
}

// unlockEach is Unlock for locks of several lockers.
func (ls Locks) unlockEach() error {
	errs, panics := make([]error, len(ls)), make([]any, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() {
			defer func() { panics[i] = recover() }() // here it would end the process
			errs[i] = l.Unlock()
		})
	}
	wg.Wait()
	for _, p := range panics {
		if p != nil {
			panic(p)
		}
	}
	return errors.Join(errs...)
}
