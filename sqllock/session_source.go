package sqllock

import (
	"errors"
	"slices"
	"time"
)

// A Session is the source of its table: its keys are in the database, and it
// reaches them through slots.

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

// A sessionKey implements sourceKey.

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
func (k *sessionKey) endExpired()   { go k.conn.loseConnection(lossLease) } // which needs table.mu
func (k *sessionKey) equip(l *Lock) { l.conn = k.conn }

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

// growPause is how long a Session goes without another connection after an
// attempt at one has failed.
const growPause = 10 * time.Second

// chooseSlotLocked is the slot for the next lock. If all slots are full, it opens
// another one for the locks to come.
func (s *Session) chooseSlotLocked() *slot {
	sl := s.bestSlotLocked()
	if sl.away == nil && s.options.perConn > 0 && sl.loadLocked() >= s.options.perConn && s.mayGrowLocked() {
		s.growLocked()
	}
	return sl
}

// bestSlotLocked is the first slot with room, so that few locks stay on few
// connections. If none has room, it is the slot with the fewest locks. Connected
// slots come before slots that connect, and these before slots that are away.
func (s *Session) bestSlotLocked() *slot {
	best := s.slots[0]
	for _, sl := range s.slots[1:] {
		if sl.standing() != best.standing() {
			if sl.standing() > best.standing() {
				best = sl
			}
		} else if best.loadLocked() >= s.options.perConn && sl.loadLocked() < best.loadLocked() {
			best = sl
		}
	}
	return best
}

// standing ranks a slot by what can be expected of it.
func (sl *slot) standing() int {
	switch {
	case sl.away != nil:
		return 0
	case sl.conn == nil:
		return 1
	}
	return 2
}

// mayGrowLocked reports whether to open another connection. It keeps to
// WithMaxConns, and leaves a connection of the pool for the proof that each needs
// when it connects.
func (s *Session) mayGrowLocked() bool {
	limit := s.options.maxConns
	if pool := s.db.Stats().MaxOpenConnections; pool > 0 {
		limit = min(limit, pool-1)
	}
	connecting := slices.ContainsFunc(s.slots, func(sl *slot) bool { return sl.conn == nil })
	return len(s.slots) < limit && !connecting && (s.growAfter == 0 || now() >= s.growAfter)
}

// growLocked adds a slot, which takes locks once it has connected.
func (s *Session) growLocked() {
	sl := newSlot(s)
	sl.away, sl.abandoned = ErrUnavailable, &s.abandoned
	s.slots = append(s.slots, sl)
	s.tasks.Add(1)
	go sl.keepConnected(nil)
}

// removeLocked takes sl, which has no locks and no queue, out of use.
func (s *Session) removeLocked(sl *slot) {
	sl.retired = true
	s.slots = slices.DeleteFunc(s.slots, func(other *slot) bool { return other == sl })
}
