package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

const (
	// agesPause is the least time between two readings of ages. A failure makes it
	// longer.
	agesPause, agesFailed = time.Second, 10 * time.Second

	// agesValid is how long an age is used after it was read. It is longer than the
	// pause, so that a key that is asked for regularly is always known.
	agesValid = 2 * agesPause

	// maxAges bounds the keys of a reading. Those of a flood beyond it are not
	// read.
	maxAges = 256
)

// heldAges are the ages of locks of other processes. Session.mu protects them.
//
// Invariant: wanted has at most maxAges keys. known has those of the last
// readings, which are not older than agesValid when one ends: at most three
// times as many.
type heldAges struct {
	wanted  map[keytable.ID]struct{}
	known   map[keytable.ID]heldAge
	reading bool          // a reading is under way
	next    time.Duration // no reading before; 0: there was none yet

	// read asks the database. Tests replace it.
	read func(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error)
}

// A heldAge says since when a key is held, by our clock, and when that was read.
type heldAge struct{ since, read time.Duration }

// HeldFor returns how long a key has been held, as far as that is known. See
// package sqllock.
func (s *Session) HeldFor(id keytable.ID) (age time.Duration, ok bool) {
	if s.registrar == nil {
		return 0, false
	}
	at := Now()
	if since, ok := s.Table.HeldSince(id); ok {
		return at - since, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, ok := s.ages.known[id]
	if connected := !s.closed && s.slots[0].conn != nil && s.slots[0].away == nil; connected && (!ok || at-known.read >= agesPause) {
		s.ages.want(id)
		if !s.ages.reading && (s.ages.next == 0 || at >= s.ages.next) {
			s.ages.reading, s.ages.next = true, at+agesPause
			s.tasks.Go(s.readAges)
		}
	}
	if !ok || at-known.read >= agesValid {
		return 0, false
	}
	return at - known.since, true
}

// want has the next reading read the age of a key, unless it has enough others.
func (a *heldAges) want(id keytable.ID) {
	if a.wanted == nil {
		a.wanted, a.known = make(map[keytable.ID]struct{}), make(map[keytable.ID]heldAge)
	}
	if len(a.wanted) < maxAges {
		a.wanted[id] = struct{}{}
	}
}

// readAges reads the ages of the keys that are wanted, and forgets what is too
// old.
func (s *Session) readAges() {
	a := &s.ages
	s.mu.Lock()
	ids := slices.Collect(maps.Keys(a.wanted))
	clear(a.wanted)
	s.mu.Unlock()
	keys := make([]dialect.Key, len(ids))
	for i, id := range ids {
		keys[i] = dbKey(id, keytable.Exclusive)
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.options.bound(agesPause))
	defer cancel()
	ages, err := a.read(ctx, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := Now()
	a.reading = false
	if err != nil {
		a.next = at + agesFailed
	}
	maps.DeleteFunc(a.known, func(_ keytable.ID, known heldAge) bool { return at-known.read >= agesValid })
	for i, id := range ids {
		if age, ok := ages[keys[i]]; ok {
			a.known[id] = heldAge{at - age, at}
		} else if err == nil {
			delete(a.known, id)
		}
	}
}

// agesInRegistry is heldAges.read of a Session with a registry.
func (s *Session) agesInRegistry(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	tables := s.registrar.tables.Load()
	if tables == nil {
		return nil, errors.New("sqllock: the registry has not been found yet")
	}
	return postgres.HoldAges(ctx, s.db, *tables, s.registrar.process, keys)
}
