package sqllock

import (
	"context"
)

// Memory is a Locker for one process without a database. It is for tests of
// code that uses locks. Only [Memory.Lose] makes its locks get lost.
//
// The methods are safe for concurrent use. [NewMemory] makes a Memory: the zero
// value is not usable.
type Memory struct {
	table *keyTable
}

// NewMemory returns a Memory without locks.
func NewMemory() *Memory {
	m := &Memory{}
	m.table = newKeyTable(m)
	m.table.handOver = forever
	return m
}

// TryLock acquires key, or returns ErrHeld or the error of ctx.
func (m *Memory) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{})
}

// Lock waits for key until ctx ends. The first to come is the first to be
// served.
func (m *Memory) Lock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, waitOf(ctx))
}

// TryAny acquires the first free one of keys. It returns ErrHeld if none is
// free.
func (m *Memory) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, want{})
}

// LockAny waits until one of keys is free, or ctx ends.
func (m *Memory) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return m.table.acquireAny(ctx, keys, waitOf(ctx))
}

// TryRLock acquires key for one of several readers, like [Session.TryRLock].
func (m *Memory) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{mode: shared})
}

// RLock is TryRLock that waits until ctx ends.
func (m *Memory) RLock(ctx context.Context, key Key) (*Lock, error) {
	return m.table.acquire(ctx, key, want{mode: shared, waits: true})
}

// TryLockAll acquires all of keys or none, like [Session.TryLockAll].
func (m *Memory) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.acquireAll(ctx, keys, want{all: true})
}

// LockAll waits until all of keys are free at once, or ctx ends.
func (m *Memory) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return m.table.awaitAll(ctx, keys)
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

// A Memory is the source of its own table, in which a key that the table does
// not know is free.
func (m *Memory) newKey() *keyState { return &keyState{own: plainKey{}} }

// take grants the key of k at once. The time does not matter, since keys pass
// between callers without end.
func (m *Memory) take(k *keyState) {
	m.table.requestedLocked(k, k.wantedMode())
	m.table.grantedLocked(k, 1) // when does not matter: handOver has no end
}

// takeGroup grants the first idle key of r, or all of them.
func (m *Memory) takeGroup(r *request) {
	if r.each != nil {
		m.takeEach(r)
		return
	}
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

// takeEach grants a candidate of each group of r, unless too many keys beyond a
// group are held.
func (m *Memory) takeEach(r *request) {
	for g := range r.each.groups {
		group := &r.each.groups[g]
		if held, _ := m.table.takenBeyondLocked(group, nil, nil); held > 0 {
			if m.table.widenLocked(r, g); held >= group.open {
				m.table.denyGroupLocked(r, g)
				return
			}
		}
	}
	for i, k := range r.states {
		if g := r.each.candidates[i].group; k != nil && r.each.groups[g].won == nil && r.each.groups[g].reserved == nil {
			r.wonLocked(g, k)
			m.table.requestedLocked(k, exclusive)
		}
	}
	m.table.grantEachLocked(r, 1)
}

func (m *Memory) giveBack(k *keyState) { m.table.freedLocked(k, nil) }
func (m *Memory) away(*keyState) error { return nil }
