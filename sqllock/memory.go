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

var errNoKeys = errors.New("sqllock: TryAny and LockAny need a key at least")

// Memory is the source of its own table: every key is free that the table does
// not know.

func (m *Memory) ask(e *entry) { m.table.grantedLocked(e, holding{}, 1) } // when does not matter: handOver has no end

func (m *Memory) askAny(a *ask) {
	for _, e := range a.entries {
		if e != nil && e.state == idle {
			m.ask(e)
			return
		}
	}
}

func (m *Memory) giveBack(e *entry) { m.table.freedLocked(e, nil) }
func (m *Memory) away(*entry) error { return nil }
