package sqllock

import "context"

// TryLock takes key, or fails: ErrHeld at once if somebody else holds it or is
// in line for it in this process, ErrUnavailable within a second if the
// database does not answer, ErrConfig if the Session lost its connection and the
// server rejects a new one, ErrCapacity, ErrNotExclusive, ErrClosed, or ctx's
// error.
func (s *Session) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return s.table.acquire(ctx, key, want{})
}

// Lock waits for key until ctx ends. In this process, first come, first
// served; a lock given back goes to the next in line at once. After a second
// the key goes through the database again, so that other processes get their
// turn; across processes there is no order. Lock goes on waiting while the
// database is away. Its errors are ErrClosed and ctx's; the latter matches
// ErrUnavailable or ErrConfig too if the database was away when ctx ended, ErrCapacity
// if there was no room for another lock, or ErrNotExclusive
// if the key was not to be had for its secret (see [Namespace.Keyed]).
func (s *Session) Lock(ctx context.Context, key Key) (*Lock, error) {
	return s.table.acquire(ctx, key, want{waits: true})
}

// TryAny takes the first free one of keys, in one round trip however many they
// are, or fails as TryLock does: with ErrHeld if none is free.
func (s *Session) TryAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return s.table.acquireAny(ctx, keys, want{})
}

// LockAny waits, as Lock does, until one of keys is free.
func (s *Session) LockAny(ctx context.Context, keys ...Key) (*Lock, error) {
	return s.table.acquireAny(ctx, keys, want{waits: true})
}

// TryRLock takes key as one of several readers, or fails as TryLock does: with ErrHeld at once
// if somebody holds key alone, or waits for it in this process. While readers have it nobody
// gets it by TryLock or Lock; readers of this process share one lock in the database, and
// those after the first are let in without a question to it. It needs PostgreSQL's advisory
// locks: elsewhere the error matches [errors.ErrUnsupported].
//
// As with sync.RWMutex, a reader must not ask for the key again, alone or as a reader: somebody
// may have come to wait in between. In one process nobody who waits to have the
// key alone is overtaken by readers that come later; across processes there is no such order,
// and readers that never leave the key all at once keep it from being had alone. Fence
// refuses a reader's lock: what is fenced is writing.
func (s *Session) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	if err := s.readers(); err != nil {
		return nil, err
	}
	return s.table.acquire(ctx, key, want{mode: shared})
}

// RLock is TryRLock that waits until ctx ends, as Lock does.
func (s *Session) RLock(ctx context.Context, key Key) (*Lock, error) {
	if err := s.readers(); err != nil {
		return nil, err
	}
	return s.table.acquire(ctx, key, want{mode: shared, waits: true})
}

// readers is errReaders if it is known that there are no readers' locks. While it is not, the first statement tells.
func (s *Session) readers() error {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if d := s.options.dialect; d != nil && !d.Traits().Readers {
		return errReaders
	}
	return nil
}

// TryLockAll takes all of keys or none, in one round trip, or fails as TryLock does: with
// ErrHeld if one of them is held. No order of keys and no crossing of sets leads to a deadlock: it
// tries, and the database looks at the keys of each set in one order, so that of two
// that want some of the same keys at the same moment one can get its own.
//
// So it is with PostgreSQL's advisory locks. On other databases, and in a lease table, the
// free keys of a set that is not complete are taken and given back in a second round trip: for that moment
// they are refused to others, and two such sets may refuse each other.
//
// A set is for one connection: of more keys than a statement may carry, or than WithMaxHeld, it is refused
// with ErrCapacity. On MySQL with a very small max_allowed_packet others' single keys may keep a set from its turn.
func (s *Session) TryLockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return s.table.acquireAll(ctx, keys)
}

// LockAll is TryLockAll that waits until ctx ends, with the errors of Lock, and ErrCapacity for a set that is too
// large. It keeps none of keys while it waits, and has no place in any line: it tries from time to time, and who
// waits for one key alone may come first.
func (s *Session) LockAll(ctx context.Context, keys ...Key) (Locks, error) {
	return s.table.awaitAll(ctx, keys)
}
