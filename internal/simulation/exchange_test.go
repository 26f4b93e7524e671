package simulation

import (
	"slices"

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
		if s.server.holders[k][s] {
			s.server.freeLocked(k, s)
		} else {
			b.NotHeld = append(b.NotHeld, k)
		}
	}
	for _, k := range b.Try[:part(len(b.Try))] {
		if s.takeOne([]dialect.Key{k}) < 0 {
			b.Busy = append(b.Busy, k)
		}
	}
	for _, group := range b.Any[:part(len(b.Any))] {
		b.Won = append(b.Won, s.takeOne(group))
	}
	for _, set := range b.All[:part(len(b.All))] {
		b.Missing = append(b.Missing, s.takeAll(set))
	}
	requests := slices.Collect(dialect.Requests(b.Each))
	for _, request := range requests[:part(len(requests))] {
		s.takeEach(request)
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

// takeOne takes the first free key of group and returns its index, or -1.
// server.mu is held.
func (s *session) takeOne(group []dialect.Key) int {
	i := slices.IndexFunc(group, s.free)
	if i >= 0 {
		s.take(group[i])
	}
	return i
}

// takeAll takes all keys of set or none. It returns the index of the first one
// that is not free, or -1. server.mu is held.
func (s *session) takeAll(set []dialect.Key) (missing int) {
	if i := slices.IndexFunc(set, func(k dialect.Key) bool { return !s.free(k) }); i >= 0 {
		return i
	}
	for _, k := range set {
		s.take(k)
	}
	return -1
}

// takeEach takes the first free key of each group of request, or none. No group
// has keys beyond it. server.mu is held.
func (s *session) takeEach(request []dialect.Group) {
	for i := range request {
		g := &request[i]
		if g.Won = slices.IndexFunc(g.Keys, s.free); g.Won < 0 {
			dialect.GiveUp(request)
			return
		}
	}
	for _, g := range request {
		s.take(g.Keys[g.Won])
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
