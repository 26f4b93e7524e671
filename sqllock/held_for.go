package sqllock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
)

// HeldFor returns how long key has been held, as far as a Session with
// [WithRegistry] knows. It is for an estimate, such as when to try again, and
// never for a decision about the lock.
//
// It does not block. A lock of this Session is known at once. The age of a lock
// of another process comes from the registry. A first call returns !ok, and the
// Session reads the ages in the background. It does so at most once a second,
// for all keys that were asked for. A later call within two seconds has it. The
// registry has only locks that have lasted a heartbeat, of processes that live.
//
// Without WithRegistry, and while there is no connection, it returns !ok and
// reads nothing. It opens no connection that WithIdleClose has closed.
func (s *Session) HeldFor(key Key) (age time.Duration, ok bool) {
	if s.registrar == nil {
		return 0, false
	}
	id := key.id()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	at := now()
	if k := s.table.keys.of(id); k != nil && k.phase == held {
		return at - k.acquired, true
	}
	known, ok := s.ages.known[id]
	if !ok || at-known.read >= agesPause {
		s.wantAgeLocked(id, at)
	}
	if !ok || at-known.read >= agesValid {
		return 0, false
	}
	return at - known.since, true
}

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

// heldAges are the ages of locks of other processes. table.mu protects them.
//
// Invariant: wanted has at most maxAges keys. known has those of the last
// readings, which are not older than agesValid when one ends: at most three
// times as many. While keys are wanted, a goroutine is about to read them.
type heldAges struct {
	wanted  map[dialect.Key]struct{}
	known   map[dialect.Key]heldAge
	reading bool          // the goroutine runs
	next    time.Duration // no reading before; 0: there was none yet

	// read asks the database. Tests replace it.
	read func(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error)
}

// A heldAge says since when a key is held, by our clock, and when that was read.
type heldAge struct{ since, read time.Duration }

// wantAgeLocked has the age of a key read, unless too many others are waited
// for.
func (s *Session) wantAgeLocked(id dialect.Key, at time.Duration) {
	a := &s.ages
	if !s.mayReadAgesLocked() {
		return
	}
	if a.wanted == nil {
		a.wanted, a.known = make(map[dialect.Key]struct{}), make(map[dialect.Key]heldAge)
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
		keys, ok := s.agesToRead()
		if !ok {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.options.bound(agesPause))
		began := now()
		ages, err := s.ages.read(ctx, keys)
		cancel()
		wait = began + agesPause - now()
		if err != nil {
			wait = agesFailed
		}
		s.noteAges(keys, ages, err, now()+wait)
	}
}

// agesToRead takes the keys that are wanted. If there are none, or there is no
// connection any more, it reports that the goroutine ends.
func (s *Session) agesToRead() (keys []dialect.Key, ok bool) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	a := &s.ages
	keys = slices.Collect(maps.Keys(a.wanted))
	clear(a.wanted)
	a.reading = len(keys) > 0 && s.mayReadAgesLocked()
	return keys, a.reading
}

// mayReadAgesLocked reports whether the Session is connected. Otherwise it asks
// the database for nothing that is not a lock.
func (s *Session) mayReadAgesLocked() bool {
	return !s.table.closed && s.slots[0].conn != nil && s.slots[0].away == nil
}

// noteAges keeps the ages of keys, or err, and forgets what is too old.
func (s *Session) noteAges(keys []dialect.Key, ages map[dialect.Key]time.Duration, err error, next time.Duration) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	a, at := &s.ages, now()
	a.next = next
	maps.DeleteFunc(a.known, func(_ dialect.Key, known heldAge) bool { return at-known.read >= agesValid })
	for _, k := range keys {
		if age, ok := ages[k]; ok {
			a.known[k] = heldAge{at - age, at}
		} else if err == nil {
			delete(a.known, k)
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
