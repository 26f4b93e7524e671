package sqllock

import (
	"time"
)

// A key is granted by the source, and the table chooses who gets it: a waiter,
// readers, or no caller any more.

// grantedLocked is the source's response, come at this time, that this process
// has the key of k from now on. If no waiter wants it any more, it is released.
func (t *keyTable) grantedLocked(k *keyState, at time.Duration) {
	t.markHeldLocked(k, at)
	if k.mode == shared {
		t.admitLocked(k)
	} else if r := k.first(); r != nil && r.mode == exclusive {
		if key := r.keyOf(k); k.own.suits(key) {
			t.grantLocked(k, r, key)
		}
	}
	if k.phase != held { // the callers have given up
		t.releaseLocked(k)
		return
	}
	t.denyTriesLocked(k, ErrHeld)
}

// grantedAllLocked is the source's response that this process has the keys of
// states, which are all of r's, from now on. If r has given up meanwhile, each
// key is for its own waiters.
func (t *keyTable) grantedAllLocked(r *request, states []*keyState, at time.Duration) {
	if r.decided { // it has given up: the keys are for others, or go back
		for _, k := range states {
			t.grantedLocked(k, at)
		}
		return
	}
	for i, k := range states {
		t.markHeldLocked(k, at)
		r.locks = append(r.locks, t.newLockLocked(k, r, r.keys[i]))
	}
	t.decideLocked(r, nil, nil)
	for _, k := range states {
		t.denyTriesLocked(k, ErrHeld)
	}
}

// markHeldLocked notes that this process has the key of k from now on.
func (t *keyTable) markHeldLocked(k *keyState, at time.Duration) {
	t.held++
	k.acquired = at
	if k.since == 0 {
		k.since = at
	}
}

// grantLocked makes r the holder of k, or one of its readers. This process has
// the key.
func (t *keyTable) grantLocked(k *keyState, r *request, key Key) {
	t.decideLocked(r, t.newLockLocked(k, r, key), nil)
}

// newLockLocked returns a lock of k for the caller of r.
func (t *keyTable) newLockLocked(k *keyState, r *request, key Key) *Lock {
	k.phase, k.pool = held, nil
	t.movedLocked(k)
	lock := &Lock{key: key, ctx: r.ctx, home: t, state: k, shared: k.mode == shared}
	k.own.equip(lock)
	if lock.shared {
		k.addReader(lock)
	} else {
		k.lock = lock
	}
	return lock
}

// releaseLocked makes the source release the key of k.
func (t *keyTable) releaseLocked(k *keyState) {
	if k.pool != nil {
		k.pool.passing.add(k.place)
	}
	k.phase = releasing
	t.source.giveBack(k)
}

// mayHandOverLocked reports whether k may pass to r, another caller of this
// process, without the source. It may not after the time of handOver, nor when
// the lease of the key has passed.
func (t *keyTable) mayHandOverLocked(k *keyState, r *request, key Key) bool {
	return !r.all && r.each == nil && r.mode == k.mode && t.mayPassLocked(k, key)
}

// mayPassLocked reports whether k may pass under this name to another caller of
// this process. See mayHandOverLocked.
func (t *keyTable) mayPassLocked(k *keyState, key Key) bool {
	if !k.own.suits(key) {
		return false
	}
	if t.handOver == forever {
		return true
	}
	return t.handOver > 0 && !t.closed && now()-k.since < t.handOver && !k.own.expired()
}

// reacquiredLocked notes that k changes hands in this process, for the
// registry.
func (t *keyTable) reacquiredLocked(k *keyState) {
	if t.registers {
		k.acquired = now()
	}
}

// Readers share a key state: one lock in the database, of a mode that excludes
// exclusive holders, and several locks here. What holds for every key state
// holds for theirs.
//
// Invariant: while a key is held in mode shared, it has at least one reader. If
// a request is first in line for it, that request waits to have the key
// exclusively, or asks for it with another secret. The connection has not
// checked that secret, so the key does not suit that request.

// mayJoinLocked reports whether another reader, which wants k under the name
// key, may share it.
func (t *keyTable) mayJoinLocked(k *keyState, key Key) bool {
	return k.phase == held && k.mode == shared && len(k.waiters) == 0 && k.own.suits(key) && !k.overLocked()
}

// overLocked reports whether k is held, but not certainly any more. Then all
// its locks are about to end.
func (k *keyState) overLocked() bool {
	if !k.own.expired() {
		return false
	}
	k.own.endExpired()
	return true
}

// admitLocked makes waiting readers share k, which this process has in mode
// shared. It stops at the first request that waits for the key exclusively.
func (t *keyTable) admitLocked(k *keyState) {
	if k.admitting || t.closed || k.overLocked() { // admitting: a caller of ours does it
		return
	}
	k.admitting = true
	defer func() { k.admitting = false }()
	for i := 0; i < len(k.waiters); {
		switch r := k.waiters[i]; {
		case r.mode == shared && k.own.suits(r.keyOf(k)):
			t.grantLocked(k, r, r.keyOf(k)) // which takes it out of the line
		case r.waits:
			return
		default: // it only tries, and will be denied
			i++
		}
	}
}

// deniedReadersLocked decides the requests of readers for k, which is queued,
// with err.
func (t *keyTable) deniedReadersLocked(k *keyState, err error) {
	k.phase = idle
	for i := 0; i < len(k.waiters); {
		if r := k.waiters[i]; r.mode == shared {
			t.decideLocked(r, nil, err)
			i = 0 // the answer may have changed the line
		} else {
			i++
		}
	}
	t.continueLocked(k)
}

// addReader makes l one of the readers of k.
func (k *keyState) addReader(l *Lock) {
	if k.readers == nil {
		k.readers = make(map[*Lock]struct{})
	}
	k.readers[l] = struct{}{}
}
