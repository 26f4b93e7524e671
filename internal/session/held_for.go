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
// times as many. While keys are wanted, a goroutine is about to read them.
type heldAges struct {
	wanted  map[keytable.ID]struct{}
	known   map[keytable.ID]heldAge
	reading bool          // the goroutine runs
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
	if !ok || at-known.read >= agesPause {
		s.wantAge(id, at)
	}
	if !ok || at-known.read >= agesValid {
		return 0, false
	}
	return at - known.since, true
}

// wantAge has the age of a key read, unless too many others are waited for.
func (s *Session) wantAge(id keytable.ID, at time.Duration) {
	a := &s.ages
	if !s.mayReadAges() {
		return
	}
	if a.wanted == nil {
		a.wanted, a.known = make(map[keytable.ID]struct{}), make(map[keytable.ID]heldAge)
	}
	if len(a.wanted) < maxAges {
		a.wanted[id] = struct{}{}
	}
	if !a.reading {
		a.reading = true
		wait := time.Duration(0)
		if a.next != 0 {
			wait = a.next - at
		}
		s.tasks.Add(1)
		go s.readAges(wait)
	}
}

// readAges reads the ages of the keys that are wanted after wait, and then of
// those that were asked for meanwhile, until there are none.
func (s *Session) readAges(wait time.Duration) {
	defer s.tasks.Done()
	for {
		sleep(s.ctx, wait)
		ids, ok := s.agesToRead()
		if !ok {
			return
		}
		keys := make([]dialect.Key, len(ids))
		for i, id := range ids {
			keys[i] = dbKey(id, keytable.Exclusive)
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.options.bound(agesPause))
		began := Now()
		ages, err := s.ages.read(ctx, keys)
		cancel()
		wait = began + agesPause - Now()
		if err != nil {
			wait = agesFailed
		}
		s.noteAges(ids, ages, err, Now()+wait)
	}
}

// agesToRead takes the keys that are wanted. If there are none, or there is no
// connection any more, it reports that the goroutine ends.
func (s *Session) agesToRead() (ids []keytable.ID, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.ages
	ids = slices.Collect(maps.Keys(a.wanted))
	clear(a.wanted)
	a.reading = len(ids) > 0 && s.mayReadAges()
	return ids, a.reading
}

// mayReadAges reports whether the Session is connected. Otherwise it asks the
// database for nothing that is not a lock.
func (s *Session) mayReadAges() bool {
	return !s.closed && s.slots[0].conn != nil && s.slots[0].away == nil
}

// noteAges keeps the ages of keys, or err, and forgets what is too old.
func (s *Session) noteAges(ids []keytable.ID, ages map[dialect.Key]time.Duration, err error, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, at := &s.ages, Now()
	a.next = next
	maps.DeleteFunc(a.known, func(_ keytable.ID, known heldAge) bool { return at-known.read >= agesValid })
	for _, id := range ids {
		if age, ok := ages[dbKey(id, keytable.Exclusive)]; ok {
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
