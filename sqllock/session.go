package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Session is the Locker for a service. It keeps all locks of a process on one
// connection, which it takes from a *sql.DB.
//
// Requests and releases queue up while a statement is under way, and the next
// statement carries them all. So the rate does not depend on the number of
// connections. A Session opens another connection for each thousand locks held.
// For a moment it needs one more, to prove that locks exclude. Give it a small
// *sql.DB of its own, so that other work cannot fill the pool when the Session
// must reconnect.
//
// The server frees the locks of a process that is frozen or cut off after the
// lease (WithLease). The process gives them up before that. When the connection
// is lost, all locks on it end with ErrLost, and the Session opens another one
// by itself.
//
// On SQLite, and with WithLeaseTable, locks are rows with a lease. The Session
// then borrows a connection for each statement, and the loss of a connection
// costs no lock.
//
// The context of a caller never reaches the driver, because a cancelled query
// would end the connection with the locks of all callers.
//
// The methods are safe for concurrent use. Make a Session with [Open]: the zero
// value is not usable.
//
// Invariant: table.mu protects the state of every slot and connection. It is
// never held while a statement is under way.
type Session struct {
	db      *sql.DB
	options options
	table   *keyTable

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the goroutines of slots that are not stuck in a driver

	registrar  *registrar    // nil: without; who connects may change it, others only read it
	connecting chan struct{} // holds a token while a slot connects: one at a time
	inDriver   atomic.Int32  // of all slots but the first

	// protected by table.mu
	slots         []*slot       // at least one
	growAfter     time.Duration // no other connection until then; 0: none has failed
	used          time.Duration // when a statement for keys was last answered, or a connection began to serve
	conflicts     map[secretCheck]secretConflict
	leftProcesses []dialect.Process // of lost connections: the server may still have them
	endFailures   int               // statements in a row, to end them, that failed
	room          room              // in the server's lock table
	address       net.Addr          // where the last connection led to; nil: not known
	counters      counters
	ages          heldAges // of locks of other processes
}

// A sessionKey is what a Session keeps for a key: the source's value in the key
// state. The key state is part of it, so that both are one allocation.
//
// Invariant: conn is not nil exactly while the key is granted.
type sessionKey struct {
	state   keyState
	session *Session

	check secretCheck // what a connection must use before it requests the key
	slot  *slot       // whose queue it stands in, while queued or requested
	conn  *connection // which holds it
	busy  bool        // while requested: the answer is that another session has it
	full  error       // ErrCapacity, if the last answer was that; else nil
}

// sessionKeyOf returns what the Session keeps for k.
func sessionKeyOf(k *keyState) *sessionKey { return k.own.(*sessionKey) }

// named notes which check a connection needs before it requests the key. The
// last name counts.
//
// Assumption: no two names with one number and different secrets are wanted at
// once. Their numbers are 64 bits of hashes, so chance does not bring that
// about. If it did, their callers might wait for each other's check without
// end. The keys would still exclude each other.
func (k *sessionKey) named(key Key) {
	if key.fingerprint != 0 {
		k.check = key.secretCheck()
	}
}

// suits reports whether the connection uses the secret with which key was made.
// The key may have been requested under another name of the same number,
// without a secret.
func (k *sessionKey) suits(key Key) bool {
	return key.fingerprint == 0 || k.conn.secrets[key.secretCheck()]
}

// expired reports whether the connection may have lost the key.
func (k *sessionKey) expired() bool { return k.conn.expired() }

// endExpired ends the connection in another goroutine, because the caller holds
// table.mu.
func (k *sessionKey) endExpired() { go k.conn.loseLease() }

// equip lets l live on the connection that holds the key.
func (k *sessionKey) equip(l *Lock) { l.life = k.conn }

// denial returns the reason of the last denial, if that was a secret or the
// lack of room.
func (k *sessionKey) denial() error {
	if err := k.session.conflictLocked(k.check); err != nil {
		return err
	}
	return k.full
}

// reset empties k for another key. The Session stays the same.
func (k *sessionKey) reset() {
	k.check, k.slot, k.conn, k.busy, k.full = secretCheck{}, nil, nil, false, nil
}

// newKey makes the memory of a key state.
func (s *Session) newKey() *keyState {
	k := &sessionKey{session: s}
	k.state.own = k
	return &k.state
}

// take puts k into the queue of a slot. It denies k at once if that slot is
// away.
func (s *Session) take(k *keyState) {
	sl := s.chooseSlotLocked()
	if sl.away != nil {
		s.denyKeyLocked(k, sl.away)
		return
	}
	k.phase = queued
	sessionKeyOf(k).slot = sl
	sl.singles = append(sl.singles, k)
	sl.notifyLocked()
}

// takeGroup puts r into the queue of a slot, once.
func (s *Session) takeGroup(r *request) {
	if r.enqueued {
		return
	}
	sl := s.chooseSlotLocked()
	if sl.away != nil {
		for _, k := range r.states {
			if k != nil && k.phase == idle {
				s.denyKeyLocked(k, sl.away)
			}
		}
		return
	}
	r.enqueued = true
	sl.groups = append(sl.groups, r)
	sl.notifyLocked()
}

// giveBack puts the release of k into the queue of the slot that holds it. If
// that slot is away, the Unlock that waits gets its error now, and the release
// stays queued.
func (s *Session) giveBack(k *keyState) {
	sl := sessionKeyOf(k).conn.slot
	sl.releases = append(sl.releases, k)
	if sl.away != nil { // no caller waits for it
		s.table.replyLocked(k, sl.away)
		sl.storeLengthLocked()
		sl.signal()
		return
	}
	sl.notifyLocked()
}

// away returns the reason why a request for k has no chance now. It asks the
// slot where k is under way, or the one that k would go to.
func (s *Session) away(k *keyState) error {
	own := (*sessionKey)(nil)
	if k != nil {
		own = sessionKeyOf(k)
	}
	switch {
	case k == nil || k.phase == idle:
		return s.bestSlotLocked().away
	case own.conn != nil:
		return own.conn.slot.away
	default:
		return own.slot.away
	}
}

// denyKeyLocked completes a request for k that was not granted, with err.
func (s *Session) denyKeyLocked(k *keyState, err error) {
	own := sessionKeyOf(k)
	own.full = nil
	if errors.Is(err, ErrCapacity) {
		own.full = err
	}
	s.table.deniedLocked(k, err)
}

// bellsLocked returns the bells of the first connection, or nil.
func (s *Session) bellsLocked() *bells {
	if c := s.slots[0].conn; c != nil {
		return c.bells
	}
	return nil
}
