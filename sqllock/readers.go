package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Readers share an key state: one lock in the database, of a mode that excludes who wants the key
// alone, and several locks here. What holds for every key state holds for theirs; besides:
//
// Invariant: while an key state is held and shared it has a reader at least, and the first who
// stands in line for it, if anybody does, waits to have the key alone, or asks for it with
// another secret.

// mayJoinLocked reports whether another reader, who asks for it as key, may share e.
func (t *keyTable) mayJoinLocked(k *keyState, key Key) bool {
	return k.phase == held && k.shared && len(k.waiters) == 0 && k.suits(key) && !k.overLocked()
}

// overLocked reports whether e, which is held, is so on a lease that has passed; then its lock, and all
// others there, are about to end.
func (k *keyState) overLocked() bool {
	c := k.holds.conn
	if c == nil || !c.expired() {
		return false
	}
	go c.loseConnection(lossLease) // which needs table.mu
	return true
}

// admitLocked lets readers in to e, which is this process's for readers, as far as nobody waits
// before them who does not read.
func (t *keyTable) admitLocked(k *keyState) {
	if k.admitting || t.closed || k.overLocked() { // admitting: a caller of ours does
		return
	}
	k.admitting = true
	defer func() { k.admitting = false }()
	for i := 0; i < len(k.waiters); {
		switch r := k.waiters[i]; {
		case r.shared && k.suits(r.keyOf(k)):
			t.grantLocked(k, r, r.keyOf(k)) // and so it is not in line any more
		case r.waits:
			return
		default: // who only tries will be refused
			i++
		}
	}
}

// deniedReadersLocked settles those who want to read e, which is queued, with err, for
// good.
func (t *keyTable) deniedReadersLocked(k *keyState, err error) {
	k.phase = idle
	for i := 0; i < len(k.waiters); {
		if r := k.waiters[i]; r.shared {
			t.decideLocked(r, nil, err)
			i = 0 // who stands there now depends on what that has set going
		} else {
			i++
		}
	}
	t.continueLocked(k)
}

// tried reports whether somebody only tries for e.
func (k *keyState) tried() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return !r.waits })
}

// first is who is to get e's key: the first in line, but for those who want others with it.
func (k *keyState) first() *request {
	for _, r := range k.waiters {
		if !r.all {
			return r
		}
	}
	return nil
}

// wantsShared reports whether e is to be asked for as readers' key.
func (k *keyState) wantsShared() bool {
	r := k.first()
	return r != nil && r.shared
}

// dbKey is what the database knows e's key as.
func (k *keyState) dbKey() dialect.Key {
	if k.shared {
		return k.key.Shared()
	}
	return k.key
}

func (k *keyState) addReader(l *Lock) {
	if k.readers == nil {
		k.readers = make(map[*Lock]struct{})
	}
	k.readers[l] = struct{}{}
}

// heldBy reports whether l is e's lock, or one of its readers'.
func (k *keyState) heldBy(l *Lock) bool {
	if !k.shared {
		return k.lock == l
	}
	_, reads := k.readers[l]
	return reads
}

// appendHolders appends the locks that are held of e.
func (k *keyState) appendHolders(locks []*Lock) []*Lock {
	if k.lock != nil {
		locks = append(locks, k.lock)
	}
	for l := range k.readers {
		locks = append(locks, l)
	}
	return locks
}
