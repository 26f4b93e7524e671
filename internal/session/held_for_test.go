package session

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// An ageReader stands for the registry.
type ageReader struct {
	mu    sync.Mutex // protects what follows
	ages  map[dialect.Key]time.Duration
	err   error
	hook  func(ctx context.Context)
	reads [][]dialect.Key
}

func (r *ageReader) read(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	r.mu.Lock()
	r.reads = append(r.reads, keys)
	ages, err, hook := maps.Clone(r.ages), r.err, r.hook
	r.mu.Unlock()
	if hook != nil {
		hook(ctx)
	}
	return ages, err
}

// count returns how many readings there were.
func (r *ageReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.reads)
}

// number returns the key of a number.
func number(n int64) keytable.ID { return keytable.ID{Number: n} }

// withAges runs test in virtual time with a Session that has a registry, which r
// reads, and a connection. It has no database.
func withAges(t *testing.T, test func(t *testing.T, s *Session, r *ageReader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &ageReader{}
		o := Defaults()
		o.Suit()
		s := &Session{options: o, registrar: new(registrar), Table: keytable.New(keytable.Config{
			Now: Now, NewHold: func() *keytable.Hold { return &keytable.Hold{Holder: untold{}} },
		})}
		s.ages.read = r.read
		s.ctx, s.cancel = context.WithCancel(t.Context())
		s.slots = []*slot{newSlot(s)}
		s.slots[0].conn = &connection{s: s}
		test(t, s, r)
		s.cancel()
		s.tasks.Wait()
	})
}

// An untold is a holder that is told nothing.
type untold struct{}

func (untold) EndContexts(keytable.End) {}
func (untold) CallHooks(keytable.End)   {}
func (untold) Name() string             { return "" }

// The first call for a key has it read, in the background. Later calls know its
// age, which grows. A key that is asked for again and again is always known. A
// key that is free by the next reading is not.
func TestHeldForIsReadInTheBackground(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.ages = map[dialect.Key]time.Duration{{ID: 1}: time.Minute}
		if age, ok := s.HeldFor(number(1)); ok || age != 0 {
			t.Errorf("the first call: %v, %t", age, ok)
		}
		synctest.Wait()
		for range 50 {
			age, ok := s.HeldFor(number(1))
			if !ok || age < time.Minute || age >= time.Minute+agesValid {
				t.Fatalf("a later call: %v, %t", age, ok)
			}
			time.Sleep(100 * time.Millisecond)
			if next, _ := s.HeldFor(number(1)); next == age {
				t.Fatal("the age does not grow")
			}
			synctest.Wait()
		}
		if n := r.count(); n < 5 || n > 6 {
			t.Errorf("%d readings in five seconds, want one a second", n)
		}
		time.Sleep(agesValid)
		if age, ok := s.HeldFor(number(1)); ok {
			t.Errorf("after a pause: %v, which is too old", age)
		}
		synctest.Wait()
		r.mu.Lock()
		r.ages = nil
		r.mu.Unlock()
		time.Sleep(agesPause)
		s.HeldFor(number(1))
		synctest.Wait()
		if age, ok := s.HeldFor(number(1)); ok {
			t.Errorf("of a key that is free: %v", age)
		}
	})
}

// There is at most one reading a second, for all keys that were asked for since.
func TestHeldForReadsOnceASecond(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		for i := range int64(100) {
			s.HeldFor(number(i))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(agesPause)
		s.HeldFor(number(0))
		synctest.Wait()
		seen := map[dialect.Key]bool{}
		for _, keys := range r.reads {
			for _, k := range keys {
				seen[k] = true
			}
		}
		if len(seen) != 100 || len(r.reads) > 4 {
			t.Errorf("%d of 100 keys were read, in %d readings", len(seen), len(r.reads))
		}
	})
}

// A lock of this process is known without a reading.
func TestHeldForOfOwnLock(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		hold, err := s.Table.Acquire(t.Context(), keytable.Want{}, number(1))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(90 * time.Second)
		if age, ok := s.HeldFor(number(1)); !ok || age != 90*time.Second {
			t.Errorf("%v, %t", age, ok)
		}
		hold.End(keytable.Released)
		s.Table.Release(nil, hold)
		if age, ok := s.HeldFor(number(1)); ok {
			t.Errorf("after the release: %v", age)
		}
		synctest.Wait()
		if n := r.count(); n != 1 {
			t.Errorf("%d readings, want 1 for the key that is free here", n)
		}
	})
}

// A reading that fails is not repeated for a while. One that hangs holds up
// neither HeldFor nor the end of the Session.
func TestHeldForFails(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.err = errors.New("no such table")
		for range 90 {
			if _, ok := s.HeldFor(number(1)); ok {
				t.Fatal("an age without a registry")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := r.count(); n != 1 {
			t.Errorf("%d readings in nine seconds of failures, want 1", n)
		}
		r.mu.Lock()
		r.err, r.hook = nil, func(ctx context.Context) { <-ctx.Done() }
		r.mu.Unlock()
		time.Sleep(agesFailed)
		for range 100 {
			s.HeldFor(number(1))
			time.Sleep(10 * time.Millisecond)
		}
		s.HeldFor(number(1))
		began := time.Now()
		s.cancel()
		s.tasks.Wait()
		if took := time.Since(began); took > 0 {
			t.Errorf("the goroutine ended after %v", took)
		}
	})
}

// Without a registry nothing is known, not even of an own lock. Without a
// connection nothing is read.
func TestHeldForWithout(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		if _, err := s.Table.Acquire(t.Context(), keytable.Want{}, number(1)); err != nil {
			t.Fatal(err)
		}
		with := s.registrar
		s.registrar = nil
		if _, ok := s.HeldFor(number(1)); ok {
			t.Error("a Session without a registry knows an age")
		}
		s.registrar, s.slots[0].conn = with, nil
		if _, ok := s.HeldFor(number(2)); ok || s.ages.wanted != nil {
			t.Error("a Session without a connection reads an age")
		}
		synctest.Wait()
		if n := r.count(); n != 0 {
			t.Errorf("%d readings", n)
		}
	})
}

// A flood of keys takes bounded memory, and bounded statements.
func TestHeldForInAFlood(t *testing.T) {
	withAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.ages = make(map[dialect.Key]time.Duration)
		for i := range int64(20000) {
			r.ages[dialect.Key{ID: i}] = time.Second
		}
		for i := range int64(20000) {
			s.HeldFor(number(i))
			if i%10 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			s.mu.Lock()
			wanted, known := len(s.ages.wanted), len(s.ages.known)
			s.mu.Unlock()
			if wanted > maxAges || known > 3*maxAges {
				t.Fatalf("%d keys are wanted and %d known", wanted, known)
			}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, keys := range r.reads {
			if len(keys) > maxAges {
				t.Fatalf("%d keys in a reading", len(keys))
			}
		}
	})
}
