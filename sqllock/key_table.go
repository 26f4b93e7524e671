package sqllock

import (
	"iter"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// The key table, and its interface to the source that grants the keys.

// A keyTable records which callers of this process hold or want which keys.
// Every locker has one. It decides a second caller of the process without the
// database.
//
// The table is keyed by what the database sees, so two names with one number
// exclude each other too. It also keeps a session of the database from taking
// the same advisory lock twice.
//
// Invariant: keys has a state for a key exactly while the key is held, queued,
// requested, being released or waited for. A queued key whose callers have all
// left stays until the next batch is prepared, or until the queue fails after
// answerTimeout. So memory is bounded by locks, by calls, and by the calls of
// such a moment, not by the keys ever seen.
type keyTable struct {
	source      source
	handOver    time.Duration                  // how long a key may pass between callers of this process; 0: not at all; forever: without end
	timeout     time.Duration                  // a try or an unlock fails after so long without an answer; 0: the source sees to that
	tryTimeout  time.Duration                  // a try fails after so long, however many statements have been answered; 0: see timeout
	onTimeout   func()                         // called with mu held when the timeout has passed; may be nil
	listen      func(k *keyState) (heard bool) // called with mu held when k was denied to waiters; reports whether the source listens for its release; may be nil
	asyncUnlock bool                           // Unlock does not wait for the source
	registers   bool                           // the source writes down who holds and who waits
	noteAfter   time.Duration                  // a wait elsewhere is noted after so long; only if registers

	// For reuse. They belong to the table, not to the package: a channel made in
	// the synctest bubble of one test is of no use to another.
	requests sync.Pool // of *request
	replies  sync.Pool // of *reply
	eaches   sync.Pool // of *request for one key of each group
	checked  checkedGroups

	mu          sync.Mutex // protects what follows, and every key state and request; never held across I/O
	keys        keyMap
	free        []*keyState            // for reuse
	pausing     map[*keyState]struct{} // the keys whose timer runs
	alongFrom   time.Duration          // no statement takes one of them along before that: to look at thousands is dear
	busy        int                    // keys with a busySince
	calls       uint64                 // calls so far: tells which came before a statement was sent
	held        int                    // keys that the source has granted and not got back
	waiting     int                    // calls that wait
	calledBy    callTally              // calls that have ended
	pools       map[int64]*keyPool     // of wide groups, by the number of their first key; nil: none
	narrowWidth int                    // of other groups of TryEach: like keyPool.width
	waitingSets map[*request]struct{}  // for the registry: calls of LockAll that wait, and waits elsewhere
	closed      bool
	wakes       *[]chan struct{} // while a batch is completed: the callers to wake once mu is free; nil: wake at once
}

const (
	forever = time.Duration(1<<63 - 1)

	// fairness is how long the callers of one process may hand a key to each
	// other. Then it goes through the database, so that other processes get it.
	fairness = time.Second

	maxFree = 1024 // key states kept for reuse
)

// A source grants the keys of a keyTable: a Session, a locker on a connection
// or a transaction, or a Memory.
//
// Its methods are called with the table's mu held and must not block. The
// source responds, at once or later, by the table's grantedLocked,
// grantedAllLocked, deniedLocked and freedLocked.
type source interface {
	// newKey makes the memory of a key state, with the source's own value in it.
	newKey() *keyState

	// take requests the key of k, which is idle, in the mode that its waiters want
	// (wantedMode). A set may be first in line. It does not get this grant.
	take(k *keyState)

	// takeGroup requests the first free one of the idle keys of r. If r wants
	// all, it requests all of them, and all are idle.
	takeGroup(r *request)

	// giveBack releases the key of k, which is releasing.
	giveBack(k *keyState)

	// away returns why a request for k has no chance now, or nil. If k is nil, it
	// is about a key that nothing is under way for.
	away(k *keyState) error
}

// A sourceKey is what a source keeps for one key. The table carries it from the
// first request for the key to the end of the last, and never looks into it.
// Its methods are called with the table's mu held.
type sourceKey interface {
	// named notes that a request wants the key under this name.
	named(key Key)

	// suits reports whether the key, which is granted, may be held under this name.
	suits(key Key) bool

	// expired reports whether the key, which is granted, is no longer certainly held.
	expired() bool

	// endExpired ends the locks of a key that has expired, soon.
	endExpired()

	// equip gives a lock what it lives on.
	equip(l *Lock)

	// denial returns why the key is denied, if not because of another holder.
	denial() error

	// reset empties the value for another key.
	reset()
}

// A plainKey is the sourceKey of a source that keeps nothing. Its locks never
// expire by themselves.
type plainKey struct{}

func (plainKey) named(Key)      {}
func (plainKey) suits(Key) bool { return true }
func (plainKey) expired() bool  { return false }
func (plainKey) endExpired()    {}
func (plainKey) equip(*Lock)    {}
func (plainKey) denial() error  { return nil }
func (plainKey) reset()         {}

// newKeyTable returns an empty table for src, which may change its settings
// before the first call.
func newKeyTable(src source) *keyTable {
	t := &keyTable{source: src, handOver: fairness, narrowWidth: fewCandidates, keys: newKeyMap(), pausing: make(map[*keyState]struct{})}
	t.requests.New = func() any { return &request{done: make(chan struct{}, 1)} }
	t.eaches.New = func() any { return &request{done: make(chan struct{}, 1), each: &eachRequest{}} }
	t.replies.New = func() any { return &reply{done: make(chan struct{}, 1)} }
	return t
}

// newKeyLocked returns a state for key, which is on the table from now on. It
// is idle, and a caller is about to want it.
func (t *keyTable) newKeyLocked(key dialect.Key) *keyState {
	var k *keyState
	if n := len(t.free); n > 0 {
		k, t.free = t.free[n-1], t.free[:n-1]
	} else {
		k = t.source.newKey()
	}
	k.key = key
	t.keys.add(k)
	return k
}

// forgetLocked removes k from the table if no caller wants it. The memory is
// reused.
func (t *keyTable) forgetLocked(k *keyState) {
	if k.phase != idle || len(k.waiters) > 0 || t.keys.of(k.key) != k {
		return
	}
	t.keys.remove(k)
	t.movedLocked(k)
	if k.polling {
		t.endPauseLocked(k)
	}
	k.own.reset()
	*k = keyState{waiters: k.waiters, timer: k.timer, own: k.own}
	if len(t.free) < maxFree {
		t.free = append(t.free, k)
	}
}

// endPauseLocked stops the timer of k, which runs.
func (t *keyTable) endPauseLocked(k *keyState) {
	k.polling = false
	k.timer.Stop()
	delete(t.pausing, k)
}

// movedLocked notes that the key of k is granted, or that nobody waits for it.
func (t *keyTable) movedLocked(k *keyState) {
	if k.busySince != 0 {
		k.busySince = 0
		t.busy--
	}
}

// closeLocked decides every request with ErrClosed. It returns the locks that
// were held, for the caller to end.
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

// A keyMap finds a key state by its key. It has a map for each key space, since
// Go's maps are faster for plain integers.
type keyMap [2]map[int64]*keyState

// newKeyMap returns an empty map.
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

// all ranges over every key state. The loop may remove them.
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
