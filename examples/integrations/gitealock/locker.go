// Package gitealock has the shape of the Locker of Gitea's package globallock,
// which other applications have copied: a lock is released by a function.
//
//	release, err := gitealock.New(locks, "repository").Lock(ctx, id) // locks is a *sqllock.Session
//	defer release() // also after an error
//
// It is an example: copy this file.
package gitealock

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A ReleaseFunc releases a lock. It is never nil, and a second call does nothing.
type ReleaseFunc func()

// A Locker acquires locks by name.
type Locker struct {
	locks     sqllock.Locker
	namespace sqllock.Namespace
}

// New returns a Locker whose keys are in a namespace.
func New(locks sqllock.Locker, namespace sqllock.Namespace) *Locker {
	return &Locker{locks: locks, namespace: namespace}
}

// Lock waits for a key until ctx ends.
func (l *Locker) Lock(ctx context.Context, key string) (ReleaseFunc, error) {
	return releaser(l.locks.Lock(ctx, l.namespace.Key(key)))
}

// TryLock acquires a key without waiting. It returns false and no error if the key
// is held.
func (l *Locker) TryLock(ctx context.Context, key string) (bool, ReleaseFunc, error) {
	release, err := releaser(l.locks.TryLock(ctx, l.namespace.Key(key)))
	if errors.Is(err, sqllock.ErrHeld) {
		return false, release, nil
	}
	return err == nil, release, err
}

// releaser returns the function that releases lock.
func releaser(lock *sqllock.Lock, err error) (ReleaseFunc, error) {
	if err != nil {
		return func() {}, err
	}
	return func() { _ = lock.Unlock() }, nil // the interface has no place for a loss
}
