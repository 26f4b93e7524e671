package sqllock

import (
	"slices"
	"time"
)

// growPause is how long a Session goes without another connection after an
// attempt at one has failed.
const growPause = 10 * time.Second

// placeLocked is the backend for the next lock. If all are full it has another
// one opened, for those to come.
func (s *Session) placeLocked() *backend {
	b := s.pickLocked()
	if b.away == nil && b.loadLocked() >= s.options.perConn && s.options.spread && s.mayGrowLocked() {
		s.growLocked()
	}
	return b
}

// pickLocked is the first backend with room, so that few locks stay on few
// connections; of those without room, the one with the fewest locks. Connected
// ones come before those that are about to be, and these before those that are
// away.
func (s *Session) pickLocked() *backend {
	best := s.backends[0]
	for _, b := range s.backends[1:] {
		if b.standing() != best.standing() {
			if b.standing() > best.standing() {
				best = b
			}
		} else if best.loadLocked() >= s.options.perConn && b.loadLocked() < best.loadLocked() {
			best = b
		}
	}
	return best
}

// standing ranks backends by what can be expected of them.
func (b *backend) standing() int {
	switch {
	case b.away != nil:
		return 0
	case b.lease == nil:
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
	connecting := slices.ContainsFunc(s.backends, func(b *backend) bool { return b.lease == nil })
	return len(s.backends) < limit && !connecting && (s.growAfter == 0 || now() >= s.growAfter)
}

// growLocked adds a backend, which takes locks once it has connected.
func (s *Session) growLocked() {
	b := newBackend(s)
	b.away, b.strays = ErrUnavailable, &s.strays
	s.backends = append(s.backends, b)
	s.tasks.Add(1)
	go b.run(nil)
}

// removeLocked takes b, which has no locks and no queue, out of use.
func (s *Session) removeLocked(b *backend) {
	b.retired = true
	s.backends = slices.DeleteFunc(s.backends, func(other *backend) bool { return other == b })
}
