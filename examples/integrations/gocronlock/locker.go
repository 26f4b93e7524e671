// Package gocronlock runs each job of gocron on one scheduler of a fleet at a
// time:
//
//	locker := gocronlock.NewLocker(locks, "jobs") // locks is a *sqllock.Session
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
//
// It is an example: copy the file that you need, locker.go or elector.go.
package gocronlock

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Locker is a gocron.Locker. While a job runs, no other scheduler runs a job of
// that name, unless the lock is lost. It does not make a job run once for each
// tick: a scheduler whose clock is late runs it again when the first run has
// ended.
type Locker struct {
	locks     sqllock.Locker
	namespace sqllock.Namespace
}

// NewLocker returns a Locker whose keys are the names of jobs in a namespace. Give
// each job a name (gocron.WithName): the default is that of its function.
func NewLocker(locks sqllock.Locker, namespace sqllock.Namespace) *Locker {
	return &Locker{locks: locks, namespace: namespace}
}

// Lock returns sqllock.ErrHeld if the job runs elsewhere. With any error gocron
// skips this run, and calls gocron.AfterLockError.
func (l *Locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lock, err := l.locks.TryLock(ctx, l.namespace.Key(job))
	if err != nil {
		return nil, err
	}
	return held{lock}, nil
}

// held is a gocron.Lock.
type held struct{ lock *sqllock.Lock }

// Unlock releases the lock, also after the end of its context: a scheduler that
// shuts down ends that before.
func (h held) Unlock(context.Context) error { return h.lock.Unlock() }
