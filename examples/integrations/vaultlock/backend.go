// Package vaultlock makes a storage backend of Vault or OpenBao one for high
// availability: of all nodes, the holder of a lock is active.
//
//	backend := vaultlock.New(storage, locks, "vault") // locks is a *sqllock.Session
//
// It is an example: copy this file.
package vaultlock

import (
	"context"
	"errors"

	"github.com/hashicorp/vault/sdk/physical"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Backend is the physical.Backend that it embeds, and a physical.HABackend. It
// hides further interfaces of the storage, such as physical.Transactional.
type Backend struct {
	physical.Backend
	locks     sqllock.Locker
	namespace sqllock.Namespace
}

// New returns a Backend. The value of a lock is an entry of the storage, which all
// nodes share.
func New(storage physical.Backend, locks sqllock.Locker, namespace sqllock.Namespace) *Backend {
	return &Backend{storage, locks, namespace}
}

// HAEnabled reports true.
func (b *Backend) HAEnabled() bool { return true }

// LockWith returns a lock that is not held yet.
func (b *Backend) LockWith(key, value string) (physical.Lock, error) {
	return &lock{backend: b, entry: physical.Entry{Key: key, Value: []byte(value)}}, nil
}

// lock is a physical.Lock. Vault calls its methods one after the other.
type lock struct {
	backend *Backend
	entry   physical.Entry
	held    *sqllock.Lock
}

// Lock waits until stop is closed, and then returns nil. The channel that it
// returns otherwise is closed when the lock ends.
func (l *lock) Lock(stop <-chan struct{}) (<-chan struct{}, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop: // nil blocks
			cancel()
		case <-ctx.Done():
		}
	}()
	held, err := l.backend.locks.Lock(ctx, l.backend.namespace.Key(l.entry.Key))
	if errors.Is(err, context.Canceled) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := l.backend.Put(held.Context(), &l.entry); err != nil {
		return nil, errors.Join(err, held.Unlock())
	}
	l.held = held
	return held.Context().Done(), nil
}

// Unlock releases the lock. The value stays, since it could be that of the next
// holder by then.
func (l *lock) Unlock() error { return l.held.Unlock() } // a nil lock is no error

// Value returns the value of the last holder, and whether there was one. Vault
// asks the storage whether the node of that value is active.
func (l *lock) Value() (bool, string, error) {
	entry, err := l.backend.Get(context.Background(), l.entry.Key)
	if err != nil || entry == nil {
		return false, "", err
	}
	return true, string(entry.Value), nil
}
