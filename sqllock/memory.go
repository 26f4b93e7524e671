package sqllock

import (
	"context"
	"errors"
)

// Memory is a Locker for one process, without a database: for tests of code
// that takes locks. Its locks are never lost.
type Memory struct {
	table *table
}

// NewMemory returns a Memory that holds no locks.
func NewMemory() *Memory {
	m := &Memory{}
	m.table = newTable(m)
	m.table.handOver = forever
	return m
}

// TryLock takes key, or fails with ErrHeld.
func (m *Memory) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, false)
}

// Lock waits for key until ctx ends, first come, first served.
func (m *Memory) Lock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, true)
}

// TryAny takes the first free one of keys, or fails with ErrHeld if there is
// none.
func (m *Memory) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, false)
}

// LockAny waits until one of keys is free, or ctx ends.
func (m *Memory) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, true)
}

// TryRLock takes key as one of several readers, as [Session.TryRLock] does.
func (m *Memory) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquireShared(ctx, key, false)
}

// RLock is TryRLock that waits until ctx ends.
func (m *Memory) RLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquireShared(ctx, key, true)
}

// TryLockAll takes all of keys or none, as [Session.TryLockAll] does.
func (m *Memory) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.acquireAll(ctx, keys)
}

// LockAll is TryLockAll that waits until ctx ends.
func (m *Memory) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.awaitAll(ctx, keys)
}

var errNoKeys = errors.New("sqllock: TryAny, LockAny, TryLockAll and LockAll need a key at least")

// Memory is the source of its own table: every key is free that the table does
// not know.

func (m *Memory) ask(e *entry) {
	m.table.askingLocked(e, e.wantsShared())
	m.table.grantedLocked(e, holding{}, 1) // when does not matter: handOver has no end
}

func (m *Memory) askGroup(a *ask) {
	if a.all {
		m.table.grantedAllLocked(a, a.share(), func(*entry) holding { return holding{} }, 1)
		return
	}
	for _, e := range a.entries {
		if e != nil && e.state == idle {
			m.ask(e)
			return
		}
	}
}

func (m *Memory) giveBack(e *entry) { m.table.freedLocked(e, nil) }
func (m *Memory) away(*entry) error { return nil }
