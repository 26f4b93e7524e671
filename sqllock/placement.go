package sqllock

import (
	"slices"
	"time"
)

// growPause is how long a Session goes without another connection after an
// attempt at one has failed.
const growPause = 10 * time.Second

// chooseSlotLocked is the slot for the next lock. If all are full it has another
// one opened, for those to come.
func (s *Session) chooseSlotLocked() *slot {
	sl := s.pickLocked()
	if sl.away == nil && sl.loadLocked() >= s.options.perConn && s.options.spread && s.mayGrowLocked() {
		s.growLocked()
	}
	return sl
}

// pickLocked is the first slot with room, so that few locks stay on few
// connections; of those without room, the one with the fewest locks. Connected
// ones come before those that are about to be, and these before those that are
// away.
func (s *Session) pickLocked() *slot {
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

// standing ranks slots by what can be expected of them.
func (sl *slot) standing() int {
	switch {
	case sl.away != nil:
		return 0
	case sl.conn == nil:
		return 1
	}
	return 2
}

// mayGrowLocked reports whether to open another connection: within WithMaxConns,
// and such that the pool has one left for the proof that each of them needs when
// it connects.
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
	go sl.run(nil)
}

// removeLocked takes b, which has no locks and no queue, out of use.
func (s *Session) removeLocked(sl *slot) {
	sl.retired = true
	s.slots = slices.DeleteFunc(s.slots, func(other *slot) bool { return other == sl })
}
