package session

import (
	"context"
	"errors"
	"maps"
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
	wanted map[keytable.ID]bool
	known  map[keytable.ID]heldAge
	next   time.Duration // no reading before; 0: there was none yet

	// read asks the database. Tests replace it.
	read func(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error)
}

// A heldAge says since when a key is held, by our clock, and when that was read.
type heldAge struct{ since, read time.Duration }

func newHeldAges(read func(context.Context, []dialect.Key) (map[dialect.Key]time.Duration, error)) heldAges {
	return heldAges{wanted: make(map[keytable.ID]bool), known: make(map[keytable.ID]heldAge), read: read}
}

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
	a := &s.ages
	if first := s.slots[0]; !s.closed && first.conn != nil && first.away == nil {
		if len(a.wanted) < maxAges {
			a.wanted[id] = true
		}
		if a.next == 0 || at >= a.next {
			a.next = keytable.Forever // until this one ends
			s.tasks.Go(s.readAges)
		}
	}
	known, ok := a.known[id]
	if !ok || at-known.read >= agesValid {
		return 0, false
	}
	return at - known.since, true
}

// readAges reads the ages of the keys that are wanted, and forgets what is too
// old.
func (s *Session) readAges() {
	a := &s.ages
	s.mu.Lock()
	wanted, keys := a.wanted, make([]dialect.Key, 0, len(a.wanted))
	a.wanted = make(map[keytable.ID]bool)
	s.mu.Unlock()
	for id := range wanted {
		keys = append(keys, DBKey(id, keytable.Exclusive))
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.options.bound(agesPause))
	defer cancel()
	ages, err := a.read(ctx, keys)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := Now()
	if a.next = at + agesPause; err != nil {
		a.next = at + agesFailed
	}
	maps.DeleteFunc(a.known, func(id keytable.ID, known heldAge) bool {
		return at-known.read >= agesValid || err == nil && wanted[id]
	})
	for id := range wanted {
		if age, ok := ages[DBKey(id, keytable.Exclusive)]; ok {
			a.known[id] = heldAge{at - age, at}
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
