package sqllock

// Readers share a key state: one lock in the database, of a mode that excludes
// exclusive holders, and several locks here. What holds for every key state holds
// for theirs.
//
// Invariant: while a key is held in mode shared, it has at least one reader. If a
// request is first in line for it, that request waits to have the key
// exclusively, or asks for it with another secret.

// mayJoinLocked reports whether another reader, which asks under the name key,
// may share k.
func (t *keyTable) mayJoinLocked(k *keyState, key Key) bool {
	return k.phase == held && k.mode == shared && len(k.waiters) == 0 && k.own.suits(key) && !k.overLocked()
}

// overLocked reports whether k is held, but not certainly any more. Then all its
// locks are about to end.
func (k *keyState) overLocked() bool {
	if !k.own.expired() {
		return false
	}
	k.own.endExpired()
	return true
}

// admitLocked lets readers in to k, which this process has in mode shared, up to
// the first request that waits to have the key exclusively.
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

func (k *keyState) addReader(l *Lock) {
	if k.readers == nil {
		k.readers = make(map[*Lock]struct{})
	}
	k.readers[l] = struct{}{}
}
