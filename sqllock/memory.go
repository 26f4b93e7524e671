package sqllock

import (
	"context"
)

// Memory is a Locker for one process, without a database: for tests of code
// that takes locks. Its locks are lost only by [Memory.Lose].
type Memory struct {
	table *keyTable
}

// NewMemory returns a Memory that holds no locks.
func NewMemory() *Memory {
	m := &Memory{}
	m.table = newKeyTable(m)
	m.table.handOver = forever
	return m
}

// TryLock takes key, or fails with ErrHeld.
func (m *Memory) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{})
}

// Lock waits for key until ctx ends, first come, first served.
func (m *Memory) Lock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{waits: true})
}

// TryAny takes the first free one of keys, or fails with ErrHeld if there is
// none.
func (m *Memory) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, want{})
}

// LockAny waits until one of keys is free, or ctx ends.
func (m *Memory) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, want{waits: true})
}

// TryRLock takes key as one of several readers, as [Session.TryRLock] does.
func (m *Memory) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{mode: shared})
}

// RLock is TryRLock that waits until ctx ends.
func (m *Memory) RLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{mode: shared, waits: true})
}

// TryLockAll takes all of keys or none, as [Session.TryLockAll] does.
func (m *Memory) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.acquireAll(ctx, keys)
}

// LockAll is TryLockAll that waits until ctx ends.
func (m *Memory) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.awaitAll(ctx, keys)
}

// Lose ends every lock that is held now as lost, and returns how many there were.
// A test uses it to see what its code does when a [Session] loses the connection
// that all its locks are on.
//
// When Lose returns, each of the locks has Err and Unlock return ErrLost, its
// contexts have ended with cause ErrLost, and the functions of [Lock.OnEnd] have
// run. Only then does a waiting call get a key, as if another process had given
// it back. Locks taken later are not affected.
func (m *Memory) Lose() (lost int) {
	m.table.mu.Lock()
	var held []*Lock
	for k := range m.table.keys.all() {
		held = k.appendHolders(held)
	}
	m.table.mu.Unlock()
	var ends []ending
	for i, lock := range held {
		end, ok := lock.end(endLost)
		if !ok { // given back meanwhile
			continue
		}
		ends = append(ends, end)
		held[lost] = held[i]
		lost++
	}
	for _, end := range ends {
		end.announce()
	}
	for _, lock := range held[:lost] {
		_ = lock.home.unlock(lock) // a Memory's never fails
	}
	return lost
}

// Memory is the source of its own table: every key is free that the table does
// not know.

func (m *Memory) newKey() *keyState { return &keyState{own: plainKey{}} }

func (m *Memory) take(k *keyState) {
	m.table.requestedLocked(k, k.wantedMode())
	m.table.grantedLocked(k, 1) // when does not matter: handOver has no end
}

func (m *Memory) takeGroup(r *request) {
	if r.all {
		m.table.grantedAllLocked(r, r.fairShare(), 1)
		return
	}
	for _, k := range r.states {
		if k != nil && k.phase == idle {
			m.take(k)
			return
		}
	}
}

func (m *Memory) giveBack(k *keyState) { m.table.freedLocked(k, nil) }
func (m *Memory) away(*keyState) error { return nil }
