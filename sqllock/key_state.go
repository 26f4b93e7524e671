package sqllock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// One key, and one request for it. table.mu protects both.

// A keyState is one key of a keyTable: its holders, its waiters, and what is
// under way.
//
// Invariant: an idle key that has waiters will be requested, because of one of
// these:
//   - Its timer runs.
//   - A waiter is in the source's queue.
//   - A set is its first waiter, and the response to another key of the set
//     decides.
//   - Its waiters are requests for one key of each of several groups, and the
//     responses to other keys decide them.
type keyState struct {
	key   dialect.Key
	phase phase
	mode  lockMode  // from requested to the end: how the key is held
	own   sourceKey // the source's value

	waiters []*request // in the order in which they are served: see insert
	upTo    uint64     // while requested: the last call that came before the statement was sent

	lock      *Lock // the holder, while held exclusively
	readers   map[*Lock]struct{}
	admitting bool   // readers are being let in
	reply     *reply // of the Unlock that waits, while releasing or freeing

	replyPlace int // the place of this key in reply

	reservedFor *request // while reserved
	claimed     *request // the waiter that claims it: see each_limit.go
	pool        *keyPool // of the wide group for which the key was taken; nil: none
	place       int      // its place in that group

	acquired time.Duration // since when the holder has it, or the first reader; without a registry: since the grant
	since    time.Duration // since when this process has kept the key, from hand to hand; 0: it has not

	busySince time.Duration // since when another process has denied the key to its waiters; 0: it has not
	alongAt   time.Duration // while polling: from when on another statement may take it along; forever: none may
	timer     *time.Timer   // for the next attempt
	polling   bool          // the timer runs
}

// A phase is how far a key is on its way from a request to its release. The
// page how-it-works.md has a picture. These are the transitions:
//
//	idle      → queued     taken; a source without a queue skips this phase
//	queued    → requested  a statement takes it along
//	queued    → idle       all callers have left, or it is denied before a statement
//	idle      → requested  as one of the keys of a group, which do not queue by themselves
//	requested → held       granted to a caller
//	requested → releasing  granted, and no caller wants it any more
//	requested → idle       denied, or the connection is lost
//	held      → releasing  the last lock ends, and no caller takes the key over
//	releasing → held       a new caller takes it over
//	releasing → freeing    a statement takes the release along; Memory skips this phase
//	freeing   → releasing  the statement has failed, and the key is still there
//	freeing   → idle       freed
//	releasing → reserved  for a request for one key of each group
//	reserved  → held      the request has got its other keys
//	reserved  → releasing it has not, and no caller takes the key over
//	held, releasing, reserved → idle  the connection is lost
type phase uint8

const (
	idle      phase = iota // not held, and nothing is under way
	queued                 // the next statement will request it
	requested              // a statement under way requests it
	held                   // granted: to a lock, or to readers
	releasing              // the next statement will give it back
	freeing                // a statement under way gives it back
	reserved               // granted, and kept for a request that waits for other keys
)

// A lockMode is how a key is held.
type lockMode uint8

const (
	exclusive lockMode = iota // by one lock
	shared                    // by readers, of which there may be several
)

// A reply is what an Unlock waits for: the results of the releases of its keys.
// It is reused only after all of them have come, and its token was taken.
// table.mu protects it until then.
type reply struct {
	errs []error       // of each key; errNoReply: to come
	left int           // how many are to come, and one more while the Unlock adds keys
	done chan struct{} // holds a token when the last one has come
}

// errNoReply stands for the result of a release that has not come.
var errNoReply = errors.New("sqllock: no reply")

// add makes r the reply for k, too.
func (r *reply) add(k *keyState) {
	if len(r.errs) == 0 {
		r.left = 1
	}
	k.reply, k.replyPlace = r, len(r.errs)
	r.errs = append(r.errs, errNoReply)
	r.left++
}

// keys returns how many keys the reply is for. r may be nil.
func (r *reply) keys() int {
	if r == nil {
		return 0
	}
	return len(r.errs)
}

// beganLocked notes that the Unlock has added its last key. It reports whether
// results are to come. r may be nil.
func (r *reply) beganLocked() (pending bool) {
	if r == nil {
		return false
	}
	r.left--
	return r.left > 0
}

// A request is one call that wants one of its keys, or all of them. table.mu
// protects it.
//
// Invariant: until it is decided, it is among the waiters of each of states
// that is not nil, and of no other key. Then it is among none.
type request struct {
	want
	ctx      context.Context
	keys     []Key
	states   []*keyState // beside keys; nil where the key was denied
	open     int         // how many of states are not nil
	number   uint64      // the table's count of calls at this one
	enqueued bool        // it stands in the source's queue, after takeGroup
	decided  bool        // it has its answer
	parked   bool        // its caller waits for the token in done
	lock     *Lock
	locks    Locks // of a request for all
	err      error
	done     chan struct{} // holds a token when decided, if parked
	timer    *time.Timer   // for the table's timeout; nil until it was needed

	// For the registry, of a request that waits.
	since   time.Duration
	holding []heldLock // what its caller holds

	each *eachRequest // of a request for one key of each of several groups; else nil

	oneKey   [1]Key
	oneState [1]*keyState
}

// A heldLock is a lock that a caller held when it began to wait.
type heldLock struct {
	lock *Lock
	pid  int64 // the server process that has the lock of a ConnLocker or TxLocker; 0: a lock of the Session itself
}

// A want is what a call wants. The zero value tries for one key, exclusively.
type want struct {
	mode  lockMode
	waits bool // it stays in line until it gets a key; else it only tries
	all   bool // all keys or none; else one of them. Such a request does not wait.

	rank uint64 // of a request that waits: lower ranks are served first

	attempt bool // one of several of a call, which counts once, at its end
}

// newRequest returns a request for several keys.
func newRequest(ctx context.Context, keys []Key, w want) *request {
	return &request{want: w, ctx: ctx, keys: keys, states: make([]*keyState, len(keys)), done: make(chan struct{}, 1)}
}

// mustWait reports whether a waiter is ahead of r, which only tries. Such a
// request never overtakes a waiter, except that readers join readers.
func (k *keyState) mustWait(r *request) bool {
	return slices.ContainsFunc(k.waiters, func(other *request) bool {
		return other.waits && (other.mode == exclusive || r.mode == exclusive)
	})
}

// waited reports whether a request waits for k, and does not only try.
func (k *keyState) waited() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return r.waits })
}

// tried reports whether a request only tries.
func (k *keyState) tried() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return !r.waits })
}

// pending reports whether k, which is idle, will be requested by itself.
func (k *keyState) pending() bool {
	return k.polling || slices.ContainsFunc(k.waiters, func(r *request) bool { return r.enqueued })
}

// first returns the request that gets the key next: the first waiter that
// wants this key and no other with it.
func (k *keyState) first() *request {
	for _, r := range k.waiters {
		if !r.all && r.each == nil {
			return r
		}
	}
	return nil
}

// wantedMode returns the mode in which to request k.
func (k *keyState) wantedMode() lockMode {
	if r := k.first(); r != nil {
		return r.mode
	}
	return exclusive
}

// insert puts r among the waiters: those that wait for the key exclusively
// stand in order of rank, then of arrival. A request does not overtake one that
// only tries, nor a reader, which have no rank.
func (k *keyState) insert(r *request) {
	k.waiters = append(k.waiters, r)
	if !r.waits || r.mode != exclusive {
		return
	}
	for i := len(k.waiters) - 1; i > 0 && k.waiters[i-1].yields(r); i-- {
		k.waiters[i-1], k.waiters[i] = r, k.waiters[i-1]
	}
}

// yields reports whether r, which came before other, is served after it.
func (r *request) yields(other *request) bool {
	return r.rank > other.rank && r.waits && r.mode == exclusive
}

// drop removes r from the waiters.
func (k *keyState) drop(r *request) {
	if i := slices.Index(k.waiters, r); i >= 0 {
		k.waiters = slices.Delete(k.waiters, i, i+1)
	}
	if k.claimed == r {
		k.passClaim()
	}
}

// orphaned reports whether a statement for k is sent, or will be, and no caller
// waits for it any more.
func (k *keyState) orphaned() bool {
	switch k.phase {
	case requested:
		return len(k.waiters) == 0
	case releasing, freeing:
		return k.reply == nil
	}
	return false
}

// dbKey returns the key as the database sees it, in the mode of k.
func (k *keyState) dbKey() dialect.Key {
	if k.mode == shared {
		return k.key.Shared()
	}
	return k.key
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

// keyOf returns the name under which r wants k.
func (r *request) keyOf(k *keyState) Key { return r.keys[slices.Index(r.states, k)] }

// ready reports whether no statement requests any of r's keys, and all may be
// requested now.
func (r *request) ready() bool {
	return !slices.ContainsFunc(r.states, func(k *keyState) bool { return k == nil || k.phase != idle || k.polling })
}

// firstState returns the first key state that r waits on, or nil.
func (r *request) firstState() *keyState {
	for _, k := range r.states {
		if k != nil {
			return k
		}
	}
	return nil
}

// hasIdleKey reports whether r wants a key that no statement requests yet.
func (r *request) hasIdleKey() bool {
	return slices.ContainsFunc(r.states, func(k *keyState) bool {
		return k != nil && k.phase == idle && !k.polling
	})
}

// claim claims k for r, which waits for it, unless an earlier request has.
func (k *keyState) claim(r *request) {
	if k.claimed == nil || k.claimed.number > r.number {
		k.claimed = r
	}
}

// passClaim passes the claim of a request that waits for k no more.
func (k *keyState) passClaim() {
	k.claimed = nil
	for _, r := range k.waiters {
		if r.each != nil && r.each.claims() {
			k.claim(r)
		}
	}
}

// groupOf returns the group of r of which k is a candidate.
func (r *request) groupOf(k *keyState) int { return r.each.candidates[slices.Index(r.states, k)].group }

// idleFor reports whether r may request k now, as one of its candidates.
func (k *keyState) idleFor(r *request) bool {
	return k.phase == idle && !k.polling && (k.claimed == nil || k.claimed == r)
}
