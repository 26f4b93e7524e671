package sqllock

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Readers share an entry: one lock in the database, of a mode that excludes who wants the key
// alone, and several locks here. What holds for every entry holds for theirs; besides:
//
// Invariant: while an entry is held and shared it has a reader at least, and the first who
// stands in line for it, if anybody does, waits to have the key alone, or asks for it with
// another secret.

// mayJoinLocked reports whether another reader, who asks for it as key, may share e.
func (t *table) mayJoinLocked(e *entry, key Key) bool {
	return e.state == held && e.shared && len(e.asks) == 0 && e.suits(key) && !e.overLocked()
}

// overLocked reports whether e, which is held, is so on a lease that has passed; then its lock, and all
// others there, are about to end.
func (e *entry) overLocked() bool {
	l := e.holds.lease
	if l == nil || !l.expired() {
		return false
	}
	go l.lose(lossLease) // which needs table.mu
	return true
}

// admitLocked lets readers in to e, which is this process's for readers, as far as nobody waits
// before them who does not read.
func (t *table) admitLocked(e *entry) {
	if e.admitting || t.closed || e.overLocked() { // admitting: a caller of ours does
		return
	}
	e.admitting = true
	defer func() { e.admitting = false }()
	for i := 0; i < len(e.asks); {
		switch a := e.asks[i]; {
		case a.shared && e.suits(a.keyOf(e)):
			t.giveLocked(e, a, a.keyOf(e)) // and so it is not in line any more
		case a.waits:
			return
		default: // who only tries will be refused
			i++
		}
	}
}

// refusedReadersLocked settles those who want to read e, which is queued, with err, for
// good.
func (t *table) refusedReadersLocked(e *entry, err error) {
	e.state = idle
	for i := 0; i < len(e.asks); {
		if a := e.asks[i]; a.shared {
			t.settleLocked(a, nil, err)
			i = 0 // who stands there now depends on what that has set going
		} else {
			i++
		}
	}
	t.keepGoingLocked(e)
}

// tried reports whether somebody only tries for e.
func (e *entry) tried() bool {
	return slices.ContainsFunc(e.asks, func(a *ask) bool { return !a.waits })
}

// first is who is to get e's key: the first in line, but for those who want others with it.
func (e *entry) first() *ask {
	for _, a := range e.asks {
		if !a.all {
			return a
		}
	}
	return nil
}

// wantsShared reports whether e is to be asked for as readers' key.
func (e *entry) wantsShared() bool {
	a := e.first()
	return a != nil && a.shared
}

// asked is what the database knows e's key as.
func (e *entry) asked() dialect.Key {
	if e.shared {
		return e.key.Shared()
	}
	return e.key
}

func (e *entry) addReader(l *Lock) {
	if e.readers == nil {
		e.readers = make(map[*Lock]struct{})
	}
	e.readers[l] = struct{}{}
}

// heldBy reports whether l is e's lock, or one of its readers'.
func (e *entry) heldBy(l *Lock) bool {
	if !e.shared {
		return e.lock == l
	}
	_, reads := e.readers[l]
	return reads
}

// appendHolders appends the locks that are held of e.
func (e *entry) appendHolders(locks []*Lock) []*Lock {
	if e.lock != nil {
		locks = append(locks, e.lock)
	}
	for l := range e.readers {
		locks = append(locks, l)
	}
	return locks
}
