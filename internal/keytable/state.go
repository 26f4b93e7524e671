package keytable

import (
	"sync/atomic"
	"time"
)

// A phase is how far a key is on its way from a request to its release.
//
//	idle      → requested  a statement tries it
//	requested → held       granted to a caller
//	requested → releasing  granted, and no caller wants it any more
//	requested → idle       denied, or not reached by the statement
//	held      → releasing  the last hold ends, and no caller takes the key over
//	releasing → held       a caller takes it over
//	releasing → freeing    a statement gives it back
//	freeing   → releasing  the statement has failed, and the key is still there
//	freeing   → idle       given back
//	any       → idle       the owner is lost
type phase uint8

const (
	idle      phase = iota // not held here, and nothing is under way
	requested              // a statement under way tries it
	held                   // granted: to a hold, or to readers
	releasing              // a statement to come gives it back
	freeing                // a statement under way gives it back
)

// inTransit reports whether it will be known soon what becomes of the key.
func (p phase) inTransit() bool { return p == requested || p == releasing || p == freeing }

// A State is one key of a [Table]. The table's mu protects it.
type State struct {
	id    ID
	phase phase
	mode  Mode // from requested to the end

	own    Group     // of this key alone
	one    [1]*State // own.keys
	groups []*Group  // of more keys, that have this one and are in use

	owner    *Owner // from the grant to the end
	hold     *Hold  // while held exclusively
	readers  map[*Hold]struct{}
	since    time.Duration // since when this process has kept the key for callers that wait; 0: it does not
	acquired time.Duration // since when its holder has it, or its first reader

	attempt uint64        // the last attempt at a stack for which it was chosen
	waits   int           // requests that wait for it, in all lines
	rests   time.Duration // until then requests that wait leave it to other processes

	// The last request that came before a statement was sent which found the key
	// held by another session: in any mode, or exclusively. Such a request need
	// not try the key.
	seen, seenExclusive uint64

	elsewhere bool // another session held it when it was last granted or denied here

	reply *reply // of the Release that waits
}

// ID returns the key.
func (k *State) ID() ID { return k.id }

// Mode returns the mode in which the key is requested or held.
func (k *State) Mode() Mode { return k.mode }

// inGroups returns the groups that have k.
func (k *State) inGroups() []*Group { return append(k.groups[:len(k.groups):len(k.groups)], &k.own) }

// state returns the state of a key, which is on the table from now on.
func (t *Table) state(id ID) *State {
	k := t.keys[id]
	if k == nil {
		if n := len(t.spare) - 1; n >= 0 {
			k, t.spare = t.spare[n], t.spare[:n]
		} else {
			k = new(State)
		}
		k.id, k.one[0] = id, k
		k.own.keys = k.one[:]
		t.keys[id] = k
	}
	return k
}

// maxSpare is how many unused States the table keeps for their next use.
const maxSpare = 1024

// forget takes k off the table if nothing needs it.
func (t *Table) forget(k *State) {
	if k.phase != idle || k.own.inUse() || len(k.groups) > 0 {
		return
	}
	delete(t.keys, k.id)
	*k = State{groups: k.groups[:0]}
	if len(t.spare) < maxSpare {
		t.spare = append(t.spare, k)
	}
}

// turn changes the phase of k, and has those of its groups settled that this
// concerns: one without a line only if it may be dropped now.
func (t *Table) turn(k *State, p phase) {
	was := k.phase
	k.phase = p
	k.own.turned(was, p)
	if p == idle || k.own.line.first != nil {
		t.touch(&k.own)
	}
	for _, g := range k.groups {
		g.turned(was, p)
		if p == idle || g.line.first != nil {
			t.touch(g)
		}
	}
}

// denied notes that a statement, sent after so many calls, found k held by
// another session when it tried it in this mode.
func (k *State) denied(upTo uint64, m Mode) {
	k.since, k.elsewhere = 0, true
	k.seen = max(k.seen, upTo)
	if m == Shared {
		k.seenExclusive = max(k.seenExclusive, upTo)
	}
}

// seenBy returns how far the denials of k count for a mode.
func (k *State) seenBy(m Mode) uint64 {
	if m == Shared {
		return k.seenExclusive
	}
	return k.seen
}

// mayPass reports whether k, which is held here, may pass to another caller of
// this process without the source.
func (t *Table) mayPass(k *State) bool {
	if t.config.HandOver == Forever {
		return true
	}
	return t.closed == nil && t.config.Now()-k.since < t.config.HandOver && !k.owner.expired()
}

// An Owner is what holds keys in the database: a session, or a transaction.
type Owner struct {
	Life Lifeline // nil: its holds end only by Lose. It never changes.
	Of   any      // for the source

	// Wake is called in place of Config.Wake when a key of the owner is to be given
	// back. Nil: Config.Wake is.
	Wake func()

	releases []*State // keys to give back; some may have been taken over since
	held     atomic.Int64
	dead     bool
}

// A Lifeline says how long the holds of an owner last. Its methods are safe for
// concurrent use.
type Lifeline interface {
	// Expired reports whether the holds are no longer certain. It must not block.
	Expired() bool

	// Over is Expired by a clock that is cheap to read, which may miss the time
	// for which the system was suspended.
	Over() bool

	// LoseLease ends all holds, because they have expired. They have ended when it
	// returns. The table must not be locked.
	LoseLease()
}

func (o *Owner) expired() bool { return o.Life != nil && o.Life.Expired() }
