package sqllock

import (
	"context"
	"errors"
)

// A Locker acquires locks. A service uses a [Session], or a shard.Locker over
// several. [ConnLocker] and [TxLocker] are for code that brings its own
// connection or pool, and [Memory] is for tests. All are safe for concurrent
// use.
//
// Locks are not re-entrant. A caller that requests a key which it holds itself
// is rejected.
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
