package simulation

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Exchange implements dialect.Session.
func (s *session) Exchange(b *dialect.Batch) error {
	return s.roundTrip(func(all bool) { s.carryOutBatch(b, all) })
}

// carryOutBatch carries out b in its order: all of it, or the first half.
// server.mu is held.
func (s *session) carryOutBatch(b *dialect.Batch, all bool) {
	left := len(b.Release) + len(b.Try) + len(b.Looks) + len(b.Stacks)
	if !all {
		left = (left + 1) / 2
	}
	part := func(n int) int {
		n = min(n, left)
		left -= n
		return n
	}
	for _, k := range b.Release[:part(len(b.Release))] {
		if s.server.holders[k][s] {
			s.server.freeLocked(k, s)
		} else {
			b.NotHeld = true
		}
	}
	for _, k := range b.Try[:part(len(b.Try))] {
		if !s.free(k) {
			b.Busy = append(b.Busy, k)
		} else {
			s.take(k)
		}
	}
	for i := range b.Looks[:part(len(b.Looks))] {
		s.look(&b.Looks[i])
	}
	for i := range b.Stacks[:part(len(b.Stacks))] {
		s.takeStack(&b.Stacks[i])
	}
}

// Room implements dialect.Session.
func (s *session) Room() int { return 1 << 20 }

// take takes k, which is free, for s. server.mu is held.
func (s *session) take(k dialect.Key) {
	if s.server.holders[k] == nil {
		s.server.holders[k] = make(map[*session]bool)
	}
	s.server.holders[k][s] = true
	s.server.world.granting(k, s)
}

// free reports whether s can take k. server.mu is held.
func (s *session) free(k dialect.Key) bool {
	alone, readers := s.server.holders[k.Exclusive()], s.server.holders[k.Shared()]
	if alone[s] || readers[s] {
		s.server.world.wrong("one session takes a key twice", "")
	}
	return len(alone) == 0 && (k.IsShared() || len(readers) == 0)
}

// look takes the first free keys of l, as many as it wants. server.mu is held.
func (s *session) look(l *dialect.Look) {
	for i, k := range l.Keys {
		if len(l.Won) < l.Want && s.free(k) {
			s.take(k)
			l.Won = append(l.Won, i)
		}
	}
}

// takeStack takes the first free key of each level, or none. server.mu is held.
func (s *session) takeStack(stack *dialect.Stack) {
	stack.Failed, stack.Won = -1, stack.Won[:0]
	for level, keys := range stack.Levels {
		i := slices.IndexFunc(keys, s.free)
		if i < 0 {
			stack.Failed = level
			return
		}
		stack.Won = append(stack.Won, i)
	}
	for level, keys := range stack.Levels {
		s.take(keys[stack.Won[level]])
	}
}

// Held implements dialect.Session.
func (s *session) Held() (keys []dialect.Key, err error) {
	err = s.roundTrip(func(bool) {
		for k, holders := range s.server.holders {
			if holders[s] {
				keys = append(keys, k)
			}
		}
	})
	return keys, err
}
