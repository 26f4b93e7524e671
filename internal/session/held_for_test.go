package session

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/keytable"
)

// An ageReader stands for the registry. A test changes it while no reading is
// under way.
type ageReader struct {
	ages  map[dialect.Key]time.Duration
	err   error
	hook  func(ctx context.Context)
	reads [][]dialect.Key
}

func (r *ageReader) read(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	r.reads = append(r.reads, keys)
	if r.hook != nil {
		r.hook(ctx)
	}
	return r.ages, r.err
}

// number returns the key of a number.
func number(n int64) keytable.ID { return keytable.ID{Number: n} }

// The first call for a key has it read, in the background. Later calls know its
// age, which grows. A key that is asked for again and again is always known. A
// key that is free by the next reading is not.
func TestHeldForIsReadInTheBackground(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, r *ageReader) {
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
		if n := len(r.reads); n < 5 || n > 6 {
			t.Errorf("%d readings in five seconds, want one a second", n)
		}
		time.Sleep(agesValid)
		if age, ok := s.HeldFor(number(1)); ok {
			t.Errorf("after a pause: %v, which is too old", age)
		}
		synctest.Wait()
		r.ages = nil
		time.Sleep(agesPause)
		s.HeldFor(number(1))
		synctest.Wait()
		if age, ok := s.HeldFor(number(1)); ok {
			t.Errorf("of a key that is free: %v", age)
		}
	})
}

// A reading forgets ages that are too old. It keeps those of other keys.
func TestHeldForForgets(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, r *ageReader) {
		r.ages = map[dialect.Key]time.Duration{{ID: 1}: time.Minute, {ID: 2}: time.Minute}
		for i, want := range [][]int64{{1}, {1, 2}, {2}} {
			s.HeldFor(number(min(1+int64(i), 2)))
			synctest.Wait()
			var known []int64
			for id := range s.ages.known {
				known = append(known, id.Number)
			}
			if slices.Sort(known); !slices.Equal(known, want) {
				t.Errorf("the ages of %v are known after %d readings, want %v", known, 1+i, want)
			}
			time.Sleep(agesPause) // so the first is agesValid old at the third
		}
	})
}

// A reading that fails is not repeated for a while. One that hangs holds up
// neither HeldFor nor the end of the Session.
func TestHeldForFails(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, r *ageReader) {
		r.err = errors.New("no such table")
		for range 90 {
			if _, ok := s.HeldFor(number(1)); ok {
				t.Fatal("an age without a registry")
			}
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(r.reads); n != 1 {
			t.Errorf("%d readings in nine seconds of failures, want 1", n)
		}
		r.err, r.hook = nil, func(ctx context.Context) { <-ctx.Done() }
		time.Sleep(agesFailed)
		s.HeldFor(number(1))
		began := time.Now()
		s.cancel()
		s.tasks.Wait()
		if took := time.Since(began); took > 0 || len(r.reads) != 2 {
			t.Errorf("the second of %d readings ended after %v", len(r.reads), took)
		}
	})
}

// Without a registry, and without a connection, nothing is read.
func TestHeldForWithout(t *testing.T) {
	withSession(t, func(t *testing.T, s *Session, r *ageReader) {
		with := s.registrar
		for _, s.registrar = range []*registrar{nil, with} {
			if s.registrar != nil {
				s.slots[0].conn = nil
			}
			if _, ok := s.HeldFor(number(1)); ok {
				t.Error("an age is known")
			}
			synctest.Wait()
		}
		if len(r.reads) != 0 {
			t.Errorf("%d readings", len(r.reads))
		}
	})
}

// There is at most one reading a second, for all keys that were asked for since.
// A flood of keys takes bounded memory, and bounded statements.
func TestHeldForManyKeys(t *testing.T) {
	for _, n := range []int64{100, 20000} {
		withSession(t, func(t *testing.T, s *Session, r *ageReader) {
			r.ages = make(map[dialect.Key]time.Duration)
			for i := range n {
				r.ages[dialect.Key{ID: i}] = time.Second
			}
			for i := range n {
				s.HeldFor(number(i))
				time.Sleep(2 * time.Second / time.Duration(n))
				s.mu.Lock()
				wanted, known := len(s.ages.wanted), len(s.ages.known)
				s.mu.Unlock()
				if wanted > maxAges || known > 3*maxAges {
					t.Fatalf("%d keys are wanted and %d known", wanted, known)
				}
			}
			time.Sleep(agesPause)
			s.HeldFor(number(0))
			synctest.Wait()
			seen := map[dialect.Key]bool{}
			for _, keys := range r.reads {
				if len(keys) > maxAges {
					t.Fatalf("%d keys in a reading", len(keys))
				}
				for _, k := range keys {
					seen[k] = true
				}
			}
			if len(r.reads) > 4 || n <= maxAges && len(seen) != int(n) {
				t.Errorf("%d of %d keys were read, in %d readings", len(seen), n, len(r.reads))
			}
		})
	}
}
