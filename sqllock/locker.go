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
	if len(ls) == 0 {
		return context.WithCancel(ctx)
	}
	name, bound, cancel := new(sharedName), ctx, func() {}
	for _, l := range ls {
		outer := cancel
		inner, unbind := l.Bind(bound)
		bound, cancel = inner, func() { unbind(); outer() }
		if l != nil && len(ls) > 1 {
			l.shareName(name)
		}
	}
	return bound, cancel
}

// Unlock releases all locks at the same time. It waits as long as [Lock.Unlock]
// does, and joins the errors of all. If a hook of OnEnd panics, all locks are
// released first, and then the panic goes on.
func (ls Locks) Unlock() (err error) {
	var ended Locks
	defer func() {
		ended.release()
		for _, l := range ls {
			err = errors.Join(err, l.Unlock())
		}
	}()
	ls.end(&ended)
	return nil
}

// end ends the locks, also if a hook of one panics. It adds those to ended that
// had not ended before.
func (ls Locks) end(ended *Locks) {
	if len(ls) == 0 {
		return
	}
	defer ls[1:].end(ended)
	if l := ls[0]; l != nil && l.end() {
		*ended = append(*ended, l)
		l.endContexts(keytable.Released)
		l.callHooks(keytable.Released)
	}
}

// release releases locks, which have ended: those of one locker in one statement,
// and at the same time those of others. All of a locker have the same result.
func (ls Locks) release() {
	if len(ls) == 0 {
		return
	}
	var (
		same, others Locks
		holds        []*keytable.Hold
		wg           sync.WaitGroup
	)
	for _, l := range ls {
		if l.home.table == ls[0].home.table {
			same, holds = append(same, l), append(holds, &l.hold)
		} else {
			others = append(others, l)
		}
	}
	if len(others) > 0 {
		wg.Go(others.release)
	}
	result := ls[0].home.table.Release(holds...)
	for _, l := range same {
		_ = l.finish(result)
	}
	wg.Wait()
}
