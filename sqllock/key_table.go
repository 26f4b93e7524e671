package sqllock

import (
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A keyTable is who in this process holds or wants which key, for every locker: a
// second caller of the process is answered here, without the database.
//
// It is keyed by what the database sees, since one database session may take
// the same advisory lock twice: two names with one id exclude each other too.
//
// Invariant: a key is in key states exactly while it is held, being taken, being
// given back or waited for; memory is bounded by calls and locks, not by keys
// ever seen.
type keyTable struct {
	source      source
	handOver    time.Duration         // how long keys may pass from hand to hand in this process; 0: not at all, forever: without end
	timeout     time.Duration         // a try or an unlock that has no answer for so long fails; 0: the source sees to that
	onTimeout   func()                // called with mu held when the timeout is used up; may be nil
	disputed    func(*keyState) error // called with mu held: why those who wait for it wait in vain; may be nil
	asyncUnlock bool
	registers   bool // it is written down who holds and who waits

	// For reuse. The table's own, not the package's: a channel made in a test's
	// synctest bubble is of no use outside.
	requests sync.Pool // of *ask
	replies  sync.Pool // of *reply

	mu          sync.Mutex // protects what follows, and all key states and asks; never held across I/O
	keys        keyMap
	free        []*keyState           // for reuse
	calls       uint64                // calls so far, to tell who came before a statement was sent
	held        int                   // key states that the source has granted and not got back
	waiting     int                   // calls of Lock that wait
	waitingSets map[*request]struct{} // calls of LockAll that wait, for the registry
	closed      bool
	wakes       *[]chan struct{} // while a lease settles a statement: who has an answer, to be woken after; else nil, and they are woken at once
}

const (
	forever = time.Duration(1<<63 - 1)

	// fairness is how long the callers of one process may hand a key on to each
	// other before it goes through the database, for other processes.
	fairness = time.Second

	// yieldFor is how long a process then stays away from the key: longer than
	// a waiter elsewhere pauses between two attempts.
	yieldFor = pollMax + pollMax/4

	// The first waiter of a key asks again after a pause that doubles from
	// pollMin to pollMax, less a random part of up to a half.
	pollMin = 2 * time.Millisecond
	pollMax = 48 * time.Millisecond

	// pollAway is the pause, likewise, while the database does not answer.
	pollAway = 250 * time.Millisecond

	maxFree = 1024
)

// A source is where a table gets its keys. Its methods are called with the
// table's mu held and must not block; they answer, at once or later, by the
// table's granted, refused and freed.
type source interface {
	take(k *keyState)     // take e's key, in the mode that e.want says; e is idle
	takeGroup(r *request) // take the first free one of a's idle key states, or, if a wants all, all, which are idle
	giveBack(k *keyState) // release e's key; e is releasing
	away(*keyState) error // not nil: asking for it, or for a new key (nil), is in vain, and why
}

// A keyState is one key of a table.
//
// Invariant: an idle key state that is wanted will be asked for without more ado: by
// its timer, or because one of its waiters stands in the source's queue; or a set is first in line for it, and
// another of the set's keys is not idle, or will be asked for, which decides about the set.
type keyState struct {
	key   dialect.Key
	phase phase
	busy  bool // while asking: the answer is that somebody else has it

	// From asking to the end: it is for readers, of which there may be several. Then they, not
	// lock, hold it.
	shared    bool
	readers   map[*Lock]struct{}
	admitting bool // readers are being let in

	upTo    uint64     // while asking: the last call that came before it was sent
	waiters []*request // who wants it, first come first

	lock  *Lock   // who holds it alone, while held
	reply *reply  // whose Unlock waits, while releasing or freeing
	holds holding // what the key hangs on, from the grant to the end

	slot     *slot         // a Session's: the queue it stands in, while queued or asking
	check    secretCheck   // a Session's: what a lease must have before it asks
	use      *secretUse    // while asking: the claim under which it is asked for; nil: without
	acquired time.Duration // while held: since when; of readers the first
	since    time.Duration // when this process got hold of the key and has kept or had it since; 0: it has not
	polls    int           // attempts of the waiters since the key was last seen to move
	timer    *time.Timer   // for the next attempt
	polling  bool          // the timer runs
	full     error         // ErrCapacity, if it was denied for that; nil since another answer
}

// holding is what a granted key lives on: one of these.
type holding struct {
	conn *connection // a Session's connection
	use  *secretUse  // its connection's claim; nil: the key needs none
	tx   *txHolder   // a TxLocker's transaction
}

type phase uint8

const (
	idle      phase = iota // nobody has it, and nothing is under way
	queued                 // will be asked for by the next statement
	requested              // is being asked for
	held                   // by lock
	releasing              // will be given back by the next statement
	freeing                // is being given back
)

// A reply is what an Unlock waits for.
type reply struct {
	err  error
	done chan struct{} // holds a token when there is one
}

func newKeyTable(src source) *keyTable {
	t := &keyTable{source: src, handOver: fairness, keys: newKeyMap()}
	t.requests.New = func() any { return &request{done: make(chan struct{}, 1)} }
	t.replies.New = func() any { return &reply{done: make(chan struct{}, 1)} }
	return t
}

func (t *keyTable) newKeyLocked(key dialect.Key) *keyState {
	var k *keyState
	if n := len(t.free); n > 0 {
		k, t.free = t.free[n-1], t.free[:n-1]
	} else {
		k = new(keyState)
	}
	k.key = key
	t.keys.add(k)
	return k
}

// forgetLocked forgets e if nobody wants it.
func (t *keyTable) forgetLocked(k *keyState) {
	if k.phase != idle || len(k.waiters) > 0 || t.keys.of(k.key) != k {
		return
	}
	t.keys.remove(k)
	if k.polling {
		k.timer.Stop()
	}
	*k = keyState{waiters: k.waiters, timer: k.timer}
	if len(t.free) < maxFree {
		t.free = append(t.free, k)
	}
}

// closeLocked settles everybody with ErrClosed and returns the locks that were held,
// for the caller to end.
func (t *keyTable) closeLocked() []*Lock {
	t.closed = true
	var locks []*Lock
	for k := range t.keys.all() {
		for len(k.waiters) > 0 {
			t.decideLocked(k.waiters[0], nil, ErrClosed)
		}
		locks = k.appendHolders(locks)
		k.lock, k.readers = nil, nil
	}
	return locks
}
