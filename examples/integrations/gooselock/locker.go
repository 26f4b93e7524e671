// Package gooselock runs the migrations of goose under a lock of latchkey, on
// every database that latchkey locks in:
//
//	locker, ctx := gooselock.New(ctx, locks, gooselock.Key) // locks is a *sqllock.Session
//	provider, err := goose.NewProvider(dialect, db, migrations, goose.WithLocker(locker))
//	…
//	_, err = provider.Up(ctx) // ends when the lock is lost
//
// It is an example: copy the file that you need, locker.go or session.go.
package gooselock

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"

	"github.com/pressly/goose/v3/lock"

	"github.com/latchkey-go/latchkey/sqllock"
)

// Key is the key of goose's own locker of sessions on PostgreSQL. So instances
// that still use that one are excluded, too, by advisory locks in the database that
// is migrated.
var Key = sqllock.ID(lock.DefaultLockID)

// A Locker is a lock.Locker for one goose.Provider. After a loss, make another.
type Locker struct {
	locks sqllock.Locker
	key   sqllock.Key
	end   context.CancelCauseFunc // of the context that New returns
	held  atomic.Pointer[sqllock.Lock]
}

// New returns a Locker, and the context for the methods of the Provider. It is
// ctx, and ends with sqllock.ErrLost when the lock is lost.
func New(ctx context.Context, locks sqllock.Locker, key sqllock.Key) (*Locker, context.Context) {
	ctx, end := context.WithCancelCause(ctx)
	return &Locker{locks: locks, key: key, end: end}, ctx
}

// Lock waits for the lock until ctx ends.
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) error {
	lock, err := l.locks.Lock(ctx, l.key)
	if err != nil {
		return err
	}
	lock.OnEnd(func(cause error) {
		if !errors.Is(cause, sqllock.ErrReleased) {
			l.end(cause)
		}
	})
	l.held.Store(lock)
	return nil
}

// Unlock releases the lock. It returns ErrLost if the lock was lost before, and
// then the method of the Provider returns that error, too.
func (l *Locker) Unlock(context.Context, *sql.DB) error {
	held := l.held.Swap(nil)
	if held == nil {
		return errors.New("gooselock: not locked")
	}
	return held.Unlock()
}
