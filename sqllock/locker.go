package sqllock

import (
	"context"
	"errors"
)

// A Locker takes locks. [Session] is the one for services, shard.Locker several of
// them as one; [ConnLocker], [TxLocker] and [Memory] are for special needs. All are
// safe for concurrent use.
//
// Locks are not re-entrant: who asks for a key that it holds itself is refused.
type Locker interface {
	// TryLock takes key, or fails with ErrHeld at once if someone else holds
	// it. The caller must Unlock what it gets. ctx bounds the call, not the
	// lock.
	TryLock(ctx context.Context, key Key) (*Lock, error)

	// Lock waits for key until ctx ends. First come, first served in one
	// process. If ctx ends the error matches ctx.Err(), and ErrUnavailable too
	// if the database was away then.
	Lock(ctx context.Context, key Key) (*Lock, error)
}

// Do runs fn under key's lock: TryLock, fn, Unlock. fn's context is ctx, ended
// by loss of the lock, with the lock in it. The error is that of TryLock, or
// fn's, joined by ErrLost if the lock was lost before fn returned. The lock
// goes back when fn panics, too.
func Do(ctx context.Context, l Locker, key Key, fn func(context.Context) error) error {
	lock, err := l.TryLock(ctx, key)
	if err != nil {
		return err
	}
	return underLock(ctx, lock, fn)
}

// underLock runs fn with a lock, or several, and gives them back.
func underLock(ctx context.Context, held interface {
	Bind(ctx context.Context) (context.Context, context.CancelFunc)
	Unlock() error
}, fn func(context.Context) error,
) (err error) {
	bound, cancel := held.Bind(ctx)
	defer func() {
		cancel() // what fn may have left behind stops before the key is free
		if unlockErr := held.Unlock(); errors.Is(unlockErr, ErrLost) {
			err = errors.Join(err, unlockErr)
		}
	}()
	return fn(bound)
}
