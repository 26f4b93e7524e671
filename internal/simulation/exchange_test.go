package simulation

import (
	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	return s.roundTrip(func(all bool) {
		s.carryOutBatch(b, func(keys int) int {
			if all {
				return keys
			}
			return (keys + 1) / 2
		})
	})
}

// carryOutBatch carries out the first part of each list of b. part returns how
// many of so many that is. server.mu is held.
func (s *session) carryOutBatch(b *dialect.Batch, part func(int) int) {
	for _, k := range b.Release[:part(len(b.Release))] {
		if s.server.owners[k] == s {
			s.server.freeLocked(k)
		} else {
			b.NotHeld = append(b.NotHeld, k)
		}
	}
	for _, k := range b.Try[:part(len(b.Try))] {
		if !s.take(k) {
			b.Busy = append(b.Busy, k)
		}
	}
	for _, group := range b.Any[:part(len(b.Any))] {
		b.Won = append(b.Won, s.takeOne(group))
	}
}

// Room implements dialect.Session.
func (s *session) Room() int { return 1 << 20 }

// take takes k for s if k is free, and reports whether it was. server.mu is held.
func (s *session) take(k dialect.Key) bool {
	owner := s.server.owners[k]
	if owner == s {
		s.server.world.wrong("one session takes a key twice", "")
	}
	if owner != nil {
		return false
	}
	s.server.owners[k] = s
	s.server.world.granting(k, s)
	return true
}

// takeOne takes the first free key of group and returns its index, or -1.
// server.mu is held.
func (s *session) takeOne(group []dialect.Key) int {
	for i, k := range group {
		if s.take(k) {
			return i
		}
	}
	return -1
}

// Held implements dialect.Session.
func (s *session) Held() (keys []dialect.Key, err error) {
	err = s.roundTrip(func(bool) {
		for k, owner := range s.server.owners {
			if owner == s {
				keys = append(keys, k)
			}
		}
	})
	return keys, err
}
