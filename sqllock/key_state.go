package sqllock

import (
	"iter"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A keyState is one key of a keyTable: its holders, its waiters, and what is under
// way.
//
// Invariant: an idle key that has waiters will be requested, because of one of these:
//   - Its timer runs.
//   - A waiter stands in the source's queue.
//   - A set is first in line, and the answer to another of its keys decides.
type keyState struct {
	key   dialect.Key
	phase phase
	mode  lockMode  // from requested to the end: how the key is held
	own   sourceKey // the source's value

	waiters []*request // first come, first served
	upTo    uint64     // while requested: the last call that came before the statement was sent

	lock      *Lock // the holder, while held exclusively
	readers   map[*Lock]struct{}
	admitting bool   // readers are being let in
	reply     *reply // of the Unlock that waits, while releasing or freeing

	acquired time.Duration // while held: since when; of readers, the first
	since    time.Duration // since when this process has kept the key, from hand to hand; 0: it has not

	polls   int         // attempts of the waiters since the key was last seen to move
	timer   *time.Timer // for the next attempt
	polling bool        // the timer runs
}

// A lockMode is how a key is held.
type lockMode uint8

const (
	exclusive lockMode = iota // by one lock
	shared                    // by readers, of which there may be several
)

// A phase is how far a key is on its way from a request to its release.
type phase uint8

const (
	idle      phase = iota // not held, and nothing is under way
	queued                 // the next statement will request it
	requested              // a statement under way requests it
	held                   // granted: to a lock, or to readers
	releasing              // the next statement will give it back
	freeing                // a statement under way gives it back
)

// A reply is what an Unlock waits for.
type reply struct {
	err  error
	done chan struct{} // holds a token when there is an answer
}

// mustWait reports whether a waiter is ahead of r, which only tries. Such a
// request never overtakes a waiter, except that readers join readers.
func (k *keyState) mustWait(r *request) bool {
	return slices.ContainsFunc(k.waiters, func(other *request) bool {
		return other.waits && (other.mode == exclusive || r.mode == exclusive)
	})
}

// waited reports whether a request waits in line, in place of only trying.
func (k *keyState) waited() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return r.waits })
}

// tried reports whether a request only tries.
func (k *keyState) tried() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return !r.waits })
}

// pending reports whether k, which is idle, will be requested without more ado.
func (k *keyState) pending() bool {
	return k.polling || slices.ContainsFunc(k.waiters, func(r *request) bool { return r.enqueued })
}

// first is the request that gets the key next: the first in line, except for
// sets of keys.
func (k *keyState) first() *request {
	for _, r := range k.waiters {
		if !r.all {
			return r
		}
	}
	return nil
}

// firstKey is the name under which the first in line asks for k.
func (k *keyState) firstKey() Key { return k.waiters[0].keyOf(k) }

// wantedMode is the mode in which to request k.
func (k *keyState) wantedMode() lockMode {
	if r := k.first(); r != nil {
		return r.mode
	}
	return exclusive
}

// drop removes r from the waiters.
func (k *keyState) drop(r *request) {
	if i := slices.Index(k.waiters, r); i >= 0 {
		k.waiters = slices.Delete(k.waiters, i, i+1)
	}
}

// underWay reports whether a statement for k is sent, or will be, and no caller
// waits for it any more.
func (k *keyState) underWay() bool {
	switch k.phase {
	case requested:
		return len(k.waiters) == 0
	case releasing, freeing:
		return k.reply == nil
	}
	return false
}

// dbKey is the database's name of the key, in the mode of k.
func (k *keyState) dbKey() dialect.Key {
	if k.mode == shared {
		return k.key.Shared()
	}
	return k.key
}

// heldBy reports whether l is the lock of k, or of one of its readers.
func (k *keyState) heldBy(l *Lock) bool {
	if k.mode == exclusive {
		return k.lock == l
	}
	_, reads := k.readers[l]
	return reads
}

// appendHolders appends the locks that hold k.
func (k *keyState) appendHolders(locks []*Lock) []*Lock {
	if k.lock != nil {
		locks = append(locks, k.lock)
	}
	for l := range k.readers {
		locks = append(locks, l)
	}
	return locks
}

// A keyMap finds a key state by its key. It has a map for each key space, since
// Go has a faster kind of map for plain integers.
type keyMap [2]map[int64]*keyState

func newKeyMap() (m keyMap) {
	for space := range m {
		m[space] = make(map[int64]*keyState)
	}
	return m
}

func (m *keyMap) of(k dialect.Key) *keyState { return m[k.Space][k.ID] }
func (m *keyMap) add(k *keyState)            { m[k.key.Space][k.key.ID] = k }
func (m *keyMap) remove(k *keyState)         { delete(m[k.key.Space], k.key.ID) }

func (m *keyMap) len() (n int) {
	for _, keys := range m {
		n += len(keys)
	}
	return n
}

// all is every key state. The loop may remove them.
func (m *keyMap) all() iter.Seq[*keyState] {
	return func(yield func(*keyState) bool) {
		for _, keys := range m {
			for _, k := range keys {
				if !yield(k) {
					return
				}
			}
		}
	}
}
