package sqllock

import (
	"context"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/keytable"
	"github.com/latchkey-go/latchkey/internal/session"
)

// The locks of a Session. Each method makes a request and leaves the rest to
// the key table.

// TryLock acquires key without waiting. It returns within 0.9 s, plus as much
// for the first key under a secret.
//
// It returns ErrHeld at once if another caller holds key, in this process or
// elsewhere, or waits for it in this process. Other errors are these:
//   - ErrUnavailable: the database does not respond in that time.
//   - ErrConfig: the Session lost its connection, and the server rejects a new
//     one.
//   - ErrCapacity: there is no room for another lock.
//   - ErrNotExclusive: another Session uses the namespace with another secret
//     (see [Namespace.Keyed]), or locks do not exclude on this server.
//   - ErrClosed: the Session was closed.
//   - The error of ctx.
//
// The lock outlives ctx. The caller must call Unlock.
func (s *Session) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return s.acquireOne(ctx, keytable.Want{}, key)
}

// Lock waits for key until ctx ends.
//
// In one process the first to come is the first to be served. An Unlock hands
// the key to the next waiter at once. After a second of that the key goes
// through the database, so that other processes get their turn.
//
// While another process holds key, the Session tries all keys that its callers
// wait for together, every 2 to 50 ms. It sends at most about 50 such statements
// a second, however many keys wait. Across processes there is no order.
//
// Lock goes on waiting while the database is away. It returns ErrClosed, or the
// error of ctx. The latter also matches the reason why no lock was granted, if
// that was not another holder: ErrUnavailable, ErrConfig, ErrCapacity or
// ErrNotExclusive.
func (s *Session) Lock(ctx context.Context, key Key) (*Lock, error) {
	return s.acquireOne(ctx, keytable.Want{Waits: true}, key)
}

// TryAny acquires one of keys that is free, in one round trip for any number of
// them. Of up to 64 keys it is the first that is free. It returns ErrHeld if
// none is free. Its other errors are those of TryLock. Without keys it fails.
func (s *Session) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	if err := s.useSecrets(ctx, keys, false); err != nil {
		return nil, err
	}
	return s.acquireAny(ctx, keytable.Want{}, keys)
}

// LockAny waits until one of keys is free, or ctx ends. Its errors are those of
// Lock.
//
// While it waits for several keys, a later RLock of the Session may join readers
// that hold one of them, and TryRLock returns ErrHeld.
func (s *Session) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	if err := s.useSecrets(ctx, keys, true); err != nil {
		return nil, err
	}
	defer noteWait(ctx, s.session, true, keys...)()
	return s.acquireAny(ctx, keytable.Want{Waits: true}, keys)
}

// TryRLock acquires key for one of several readers, without waiting. While
// readers hold key, TryLock and Lock do not get it.
//
// It returns ErrHeld at once if a caller holds key exclusively, or waits for
// that in this process. Its other errors are those of TryLock. Readers' locks
// need PostgreSQL's advisory locks. Elsewhere the error matches
// [errors.ErrUnsupported].
//
// The readers of a process share one lock in the database, so only the first of
// them costs a round trip.
//
// As with sync.RWMutex, a reader must not request key again, because a waiter
// may have come meanwhile. In one process a waiter for the exclusive lock is
// ahead of readers that come later. Across processes there is no such order. If
// readers elsewhere always overlap, the exclusive lock is never granted.
//
// [Fence] rejects a reader's lock, since it protects writes.
func (s *Session) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return s.acquireOne(ctx, keytable.Want{Mode: keytable.Shared}, key)
}

// RLock waits until key is free for a reader, or ctx ends. It is TryRLock with
// the waiting and the errors of Lock.
func (s *Session) RLock(ctx context.Context, key Key) (*Lock, error) {
	return s.acquireOne(ctx, keytable.Want{Mode: keytable.Shared, Waits: true}, key)
}

// acquireOne acquires key. Before the first connection it is not known whether
// the database has readers' locks, and the first statement tells.
func (s *Session) acquireOne(ctx context.Context, w keytable.Want, key Key) (*Lock, error) {
	if w.Mode == keytable.Shared {
		if d := s.session.Dialect(); d != nil && !d.Traits().Readers {
			s.table.Count(session.ErrReaders)
			return nil, session.ErrReaders
		}
	}
	if key.fingerprint != 0 {
		if err := s.useSecrets(ctx, []Key{key}, w.Waits); err != nil {
			return nil, err
		}
	}
	if w.Waits {
		defer noteWait(ctx, s.session, false, key)()
	}
	return s.acquire(ctx, w, key)
}

// TryLockAll acquires all of keys or none, in one round trip.
//
// It returns ErrHeld if one of keys is held. Its other errors are those of
// TryLock. Sets never deadlock, whatever the order of their keys. The database
// tries the keys of each set in one order, so of two sets that overlap one
// succeeds.
//
// This holds for PostgreSQL's advisory locks. Elsewhere the free keys of an
// incomplete set are acquired, and released in a second round trip. Meanwhile
// other callers find them held, and two such sets may reject each other.
//
// All keys of a set are on one connection. TryLockAll returns ErrCapacity for
// more keys than WithMaxHeld allows or than a statement carries. On MySQL with
// a very small max_allowed_packet, single keys of other callers may keep a set
// from its turn.
func (s *Session) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	if err := s.useSecrets(ctx, keys, false); err != nil {
		return nil, err
	}
	return s.acquireAll(ctx, keytable.Want{}, keys)
}

// LockAll waits until all of keys are free at once, or ctx ends. Its errors are
// those of Lock, and ErrCapacity for a set that is too large.
//
// It holds none of keys while it waits, and has no place in a queue: it tries
// from time to time. A caller that waits for one of the keys may be served
// first.
func (s *Session) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	if err := s.useSecrets(ctx, keys, true); err != nil {
		return nil, err
	}
	defer noteWait(ctx, s.session, false, keys...)()
	return s.acquireAll(ctx, keytable.Want{Waits: true}, keys)
}

// groups lets package ratelimit acquire one key of each of several groups in
// one call, or none: see [inside.TryEach].
type groups = inside.Groups

// tryEach acquires one key of each group, or none.
//
// If every key of a group was seen held, the error is a *[inside.FullError],
// which matches ErrHeld. Its other errors are those of TryLock, and ErrCapacity
// for more groups than WithMaxHeld allows.
//
// A call never holds a part of its groups while it waits. It does not overtake
// a caller of this process that waits for a key. With lease tables and MariaDB,
// a rejected call may hold some keys for a moment, and a second round trip
// releases them. Meanwhile other callers find these keys held.
func (s *Session) tryEach(ctx context.Context, groups [][]Key) (Locks, error) {
	for _, keys := range groups {
		if err := s.useSecrets(ctx, keys, false); err != nil {
			return nil, err
		}
	}
	return s.acquireEach(ctx, keytable.Want{}, groups)
}
