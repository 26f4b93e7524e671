// Package fiberlock makes the idempotency middleware of fiber exclude requests of
// all instances, in place of those of one process:
//
//	locker := fiberlock.New(locks, sqllock.Namespace("idempotency").Keyed(secret).Key, 5*time.Second)
//	app.Use(idempotency.New(idempotency.Config{Lock: locker, Storage: shared}))
//
// The Storage must be one that all instances share. It is an example: copy this
// file. It is for fiber v3, and fits v2 with another import path.
package fiberlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gofiber/fiber/v3"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Locker is an idempotency.Locker.
type Locker struct {
	locks sqllock.Locker
	key   func(id string) sqllock.Key
	wait  time.Duration

	mu   sync.Mutex                 // protects held
	held map[string][]*sqllock.Lock // oldest first; several only after the loss of all but the last
}

// New returns a Locker that waits for a busy key for at most wait. Clients choose
// the ids, so key should be the method of a sqllock.KeyedNamespace.
func New(locks sqllock.Locker, key func(id string) sqllock.Key, wait time.Duration) *Locker {
	return &Locker{locks: locks, key: key, wait: wait, held: map[string][]*sqllock.Lock{}}
}

// Lock returns a *fiber.Error: 409 if another request has the key for longer than
// the wait, and 503 if the lock is not available.
func (l *Locker) Lock(id string) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.wait)
	defer cancel()
	lock, err := l.locks.Lock(ctx, l.key(id))
	switch {
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, sqllock.ErrUnavailable):
		return fiber.NewError(fiber.StatusConflict, "A request with this idempotency key is in progress.")
	case err != nil:
		return fiber.NewError(fiber.StatusServiceUnavailable, "The lock service is unavailable. Try again.")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if lock.Err() != nil { // another request may have the key, and stand in held
		return fiber.NewError(fiber.StatusServiceUnavailable, "The lock service is unavailable. Try again.")
	}
	l.held[id] = append(l.held[id], lock)
	return nil
}

// Unlock releases the oldest lock of id. So a request that has lost its lock does
// not release that of the next holder.
func (l *Locker) Unlock(id string) error {
	l.mu.Lock()
	locks := l.held[id]
	if len(locks) > 1 {
		l.held[id] = locks[1:]
	} else {
		delete(l.held, id)
	}
	l.mu.Unlock()
	if len(locks) == 0 {
		return nil // as idempotency.MemoryLock
	}
	return locks[0].Unlock()
}
