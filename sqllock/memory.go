package sqllock

import (
	"context"
	"slices"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// Memory is a Locker for one process without a database. It is for tests of
// code that uses locks. Only [Memory.Lose] makes its locks get lost.
//
// The methods are safe for concurrent use. [NewMemory] makes a Memory: the zero
// value is not usable.
type Memory struct {
	home
	groups
}

// NewMemory returns a Memory without locks.
func NewMemory() *Memory {
	m := &Memory{home: home{table: keytable.New(keytable.Config{Now: session.Now, NewHold: newHold, HandOver: keytable.Forever})}}
	m.groups = inside.GroupsBy(func(ctx context.Context, groups [][]Key) (Locks, error) {
		return m.acquireEach(ctx, keytable.Want{}, groups)
	})
	return m
}

// TryLock acquires key, or returns ErrHeld or the error of ctx.
func (m *Memory) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return m.acquire(ctx, keytable.Want{}, key)
}

// Lock waits for key until ctx ends. The first to come is the first to be
// served.
func (m *Memory) Lock(ctx context.Context, key Key) (*Lock, error) {
	return m.acquire(ctx, keytable.Want{Waits: true}, key)
}

// TryAny acquires one of keys that is free, like [Session.TryAny]. It returns
// ErrHeld if none is free.
func (m *Memory) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.acquireAny(ctx, keytable.Want{}, keys)
}

// LockAny waits until one of keys is free, or ctx ends.
func (m *Memory) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.acquireAny(ctx, keytable.Want{Waits: true}, keys)
}

// TryRLock acquires key for one of several readers, like [Session.TryRLock].
func (m *Memory) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return m.acquire(ctx, keytable.Want{Mode: keytable.Shared}, key)
}

// RLock is TryRLock that waits until ctx ends.
func (m *Memory) RLock(ctx context.Context, key Key) (*Lock, error) {
	return m.acquire(ctx, keytable.Want{Mode: keytable.Shared, Waits: true}, key)
}

// TryLockAll acquires all of keys or none, like [Session.TryLockAll].
func (m *Memory) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.acquireAll(ctx, keytable.Want{}, keys)
}

// LockAll waits until all of keys are free at once, or ctx ends.
func (m *Memory) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.acquireAll(ctx, keytable.Want{Waits: true}, keys)
}

// Lose ends every lock that is held now as lost, and returns their number. A
// test uses it to see what its code does when a [Session] loses its connection
// with all locks.
//
// When Lose returns, the Err and Unlock of these locks return ErrLost. Their
// contexts have ended with the cause ErrLost, and the functions of [Lock.OnEnd]
// have run. Only then do waiting calls get the keys, as if another process had
// released them. Later locks are not affected.
func (m *Memory) Lose() (lost int) {
	ends := slices.DeleteFunc(m.table.AllHolds(), func(h *keytable.Hold) bool { return !h.End(keytable.Lost) })
	ends.Announce()
	_ = m.table.Release(ends...)
	return len(ends)
}
