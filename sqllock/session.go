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

// A Session is the Locker for a service: every lock of the process on one
// database connection, which it takes from a *sql.DB and keeps.
//
// While one statement is under way, locks to take and to give back queue up,
// and go together in the next: the rate does not depend on the number of
// connections. The Session takes another connection for each thousand locks
// held only, and one more for a moment while it opens one, to prove on both
// that locks exclude. Give it a small *sql.DB of its own, so that work that
// fills the pool cannot keep it from reconnecting.
//
// The server frees the locks of a process that is frozen or cut off after a
// lease (WithLease), and the process gives them up before that. When the
// connection is lost, all locks on it end together with ErrLost, and the
// Session opens another one by itself.
//
// With a lease table (on SQLite, or with WithLeaseTable) locks are rows instead, which the Session's row
// gives a lease: it borrows a connection for each statement, and what happens to
// connections costs no lock.
//
// A caller's context never reaches the driver: cancelling a query would end the
// connection with everybody's locks.
type Session struct {
	db      *sql.DB
	options options
	table   *keyTable

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // the goroutines of slots that are not stuck in a driver

	registrar  *registrar    // nil: without; who connects may change it, others only read it
	connecting chan struct{} // holds a token while a slot connects: one at a time
	abandoned  atomic.Int32  // of all slots but the first

	// protected by table.mu
	slots         []*slot       // at least one
	growAfter     time.Duration // no other connection until then; 0: none has failed
	conflicts     map[secretCheck]secretConflict
	leftProcesses []dialect.Process // of lost connections: the server may still have them
	room          room              // in the server's lock table
	address       net.Addr          // where the last connection led to; nil: not known
	counters      counters
}

// counters is what Stats adds up; protected by table.mu.
type counters struct {
	exchanges, losses       uint64
	roundTrip, roundTripMax time.Duration
}

// exchanged counts a statement that took d. The smoothed time moves by an
// eighth of the difference, as TCP's (RFC 6298).
func (c *counters) exchanged(d time.Duration) {
	c.exchanges++
	if c.roundTrip == 0 {
		c.roundTrip = d
	} else {
		c.roundTrip += (d - c.roundTrip) / 8
	}
	c.roundTripMax = max(c.roundTripMax, d)
}

// A sessionKey is what a Session keeps for a key. The key state is part of it,
// so that both are one allocation.
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

func sessionKeyOf(k *keyState) *sessionKey { return k.own.(*sessionKey) }

func (k *sessionKey) named(key Key) {
	if key.print != 0 {
		k.check = key.secretCheck()
	}
}

// suits reports whether the connection uses the secret with which key was made.
// The key may have been requested under another name of the same number, without
// a secret.
func (k *sessionKey) suits(key Key) bool {
	return key.print == 0 || k.conn.secrets[key.secretCheck()]
}

func (k *sessionKey) expired() bool { return k.conn.expired() }

func (k *sessionKey) endExpired() { go k.conn.loseLease() } // which needs table.mu

func (k *sessionKey) equip(l *Lock) { l.life = k.conn }

func (k *sessionKey) denial() error {
	if err := k.session.conflictLocked(k.check); err != nil {
		return err
	}
	return k.full
}

func (k *sessionKey) reset() {
	k.check, k.slot, k.conn, k.busy, k.full = secretCheck{}, nil, nil, false, nil
}

func (s *Session) newKey() *keyState {
	k := &sessionKey{session: s}
	k.state.own = k
	return &k.state
}

func (s *Session) take(k *keyState) {
	sl := s.chooseSlotLocked()
	if sl.away != nil {
		s.denyKeyLocked(k, sl.away)
		return
	}
	k.phase = queued
	sessionKeyOf(k).slot = sl
	sl.tries = append(sl.tries, k)
	sl.notifyLocked()
}

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

// away is why to request k has no chance: of the slot where k is under way, or of
// the one that it would go to.
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

// denyKeyLocked answers for k that it was not granted, with err.
func (s *Session) denyKeyLocked(k *keyState, err error) {
	own := sessionKeyOf(k)
	own.full = nil
	if errors.Is(err, ErrCapacity) {
		own.full = err
	}
	s.table.deniedLocked(k, err)
}
