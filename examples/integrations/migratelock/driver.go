// Package migratelock gives a database driver of golang-migrate a lock of
// latchkey in place of its own:
//
//	driver = migratelock.New(driver, locks, key, 10*time.Second) // locks is a *sqllock.Session
//	m, err := migrate.NewWithInstance("iofs", source, "app", driver)
//	…
//	err = m.Up() // begins no migration, and completes none, after the lock was lost
//
// Every instance of the fleet must use it, since the driver's own lock is not
// taken. It is an example: copy this file.
package migratelock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/golang-migrate/migrate/v4/database"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Driver is the database.Driver that it embeds, with another lock. Its Open is
// that of the other driver: do not register it.
//
// After a loss, make another Migrate: the calls of this one return
// migrate.ErrLocked.
type Driver struct {
	database.Driver

	locks sqllock.Locker
	key   sqllock.Key
	wait  time.Duration
	held  atomic.Pointer[sqllock.Lock]
}

// New returns a Driver that waits for a lock for at most wait. This must be
// shorter than Migrate.LockTimeout, 15 s by default. After that golang-migrate
// abandons a call of Lock, and never releases what the call acquires.
func New(driver database.Driver, locks sqllock.Locker, key sqllock.Key, wait time.Duration) *Driver {
	return &Driver{Driver: driver, locks: locks, key: key, wait: wait}
}

// Lock returns database.ErrLocked if the lock is held, here or elsewhere.
func (d *Driver) Lock() error {
	if d.held.Load() != nil {
		return database.ErrLocked
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.wait)
	defer cancel()
	lock, err := d.locks.Lock(ctx, d.key)
	switch {
	case err == nil:
		d.held.Store(lock)
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrUnavailable):
		err = fmt.Errorf("%w: %w", database.ErrLocked, err)
	}
	return err
}

// Unlock returns sqllock.ErrLost if the lock was lost.
func (d *Driver) Unlock() error {
	lock := d.held.Swap(nil)
	if lock == nil {
		return database.ErrNotLocked
	}
	return lock.Unlock()
}

// SetVersion writes the version, unless the lock was lost. golang-migrate calls it
// before each migration, and after it. So no migration begins after a loss, and
// the version of one that was under way stays dirty.
func (d *Driver) SetVersion(version int, dirty bool) error {
	if lock := d.held.Load(); lock != nil && lock.Err() != nil {
		return lock.Err()
	}
	return d.Driver.SetVersion(version, dirty)
}
