package sqllock

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// An ageReader stands for the registry.
type ageReader struct {
	mu    sync.Mutex // protects what follows
	ages  map[dialect.Key]time.Duration
	err   error
	hook  func(ctx context.Context)
	reads [][]dialect.Key
	began []time.Time
}

func (r *ageReader) read(ctx context.Context, keys []dialect.Key) (map[dialect.Key]time.Duration, error) {
	r.mu.Lock()
	r.reads, r.began = append(r.reads, keys), append(r.began, time.Now())
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

// simulateAges is simulate with a registry that r reads.
func simulateAges(t *testing.T, test func(t *testing.T, s *Session, r *ageReader), opts ...Option) {
	t.Helper()
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		r := &ageReader{}
		s.table.mu.Lock()
		s.registrar, s.ages.read = new(registrar), r.read
		s.table.mu.Unlock()
		test(t, s, r)
	}, opts...)
}

// The first call for a key has it read, in the background. Later calls know its
// age, which grows. A key that is asked for again and again is always known.
func TestHeldForIsReadInTheBackground(t *testing.T) {
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.mu.Lock()
		r.ages = map[dialect.Key]time.Duration{ID(1).id(): time.Minute}
		r.mu.Unlock()
		if age, ok := s.HeldFor(ID(1)); ok || age != 0 {
			t.Errorf("the first call: %v, %t", age, ok)
		}
		synctest.Wait()
		for range 50 {
			age, ok := s.HeldFor(ID(1))
			if !ok || age < time.Minute || age >= time.Minute+agesValid {
				t.Fatalf("a later call: %v, %t", age, ok)
			}
			time.Sleep(100 * time.Millisecond)
			if next, _ := s.HeldFor(ID(1)); next == age {
				t.Fatal("the age does not grow")
			}
			synctest.Wait()
		}
		if n := r.count(); n < 5 || n > 6 {
			t.Errorf("%d readings in five seconds, want one a second", n)
		}
		time.Sleep(agesValid)
		if age, ok := s.HeldFor(ID(1)); ok {
			t.Errorf("after a pause: %v, which is too old", age)
		}
	})
}

// There is one reading a second for all keys that were asked for meanwhile. None
// of them needs another call to be read.
func TestHeldForReadsOnceASecond(t *testing.T) {
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		for i := range int64(100) {
			s.HeldFor(ID(i))
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		s.table.mu.Lock()
		reading := s.ages.reading
		s.table.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		seen := map[dialect.Key]bool{}
		for i, keys := range r.reads {
			for _, k := range keys {
				seen[k] = true
			}
			if i > 0 && r.began[i].Sub(r.began[i-1]) < agesPause {
				t.Errorf("%v between two readings", r.began[i].Sub(r.began[i-1]))
			}
		}
		if len(seen) != 100 || len(r.reads) > 4 {
			t.Errorf("%d of 100 keys were read, in %d readings", len(seen), len(r.reads))
		}
		if reading {
			t.Error("the goroutine goes on without a key")
		}
	})
}

// A lock of this process is known without a reading, and the registry's word on
// its key is not asked for.
func TestHeldForOfOwnLock(t *testing.T) {
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		lock := mustTry(t, s, ID(1))
		time.Sleep(90 * time.Second)
		if age, ok := s.HeldFor(ID(1)); !ok || age != 90*time.Second {
			t.Errorf("%v, %t", age, ok)
		}
		mustUnlock(t, lock)
		if age, ok := s.HeldFor(ID(1)); ok {
			t.Errorf("after Unlock: %v", age)
		}
		synctest.Wait()
		if n := r.count(); n != 1 {
			t.Errorf("%d readings, want 1 for the key that is free here", n)
		}
	})
}

// A reading that fails is not repeated for a while. One that hangs holds up
// neither HeldFor nor Close.
func TestHeldForFails(t *testing.T) {
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.err = errors.New("no such table")
		for range 90 {
			if _, ok := s.HeldFor(ID(1)); ok {
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
			s.HeldFor(ID(1))
			time.Sleep(10 * time.Millisecond)
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
		s.HeldFor(ID(1))
		began := time.Now()
		if err := s.Close(); err != nil || time.Since(began) > 100*time.Millisecond {
			t.Errorf("Close: %v after %v", err, time.Since(began))
		}
	})
}

// Without a registry nothing is known, not even of an own lock. A Session that
// sleeps is not woken, and reads nothing.
func TestHeldForWithout(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		mustTry(t, s, ID(1))
		if _, ok := s.HeldFor(ID(1)); ok || s.ages.wanted != nil {
			t.Error("a Session without a registry knows an age")
		}
	})
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		time.Sleep(idleTime)
		synctest.Wait()
		if _, ok := s.HeldFor(ID(1)); ok || !s.Stats().IdleClosed {
			t.Errorf("HeldFor of a Session that sleeps: %t, idle closed %t", ok, s.Stats().IdleClosed)
		}
		time.Sleep(2 * time.Second)
		if n := r.count(); n != 0 || !s.Stats().IdleClosed {
			t.Errorf("%d readings", n)
		}
	}, WithIdleClose(idleTime))
}

// A flood of keys takes bounded memory, and bounded statements.
func TestHeldForInAFlood(t *testing.T) {
	simulateAges(t, func(t *testing.T, s *Session, r *ageReader) {
		r.ages = make(map[dialect.Key]time.Duration)
		for i := range int64(20000) {
			r.mu.Lock()
			r.ages[ID(i).id()] = time.Second
			r.mu.Unlock()
		}
		for i := range int64(20000) {
			s.HeldFor(ID(i))
			if i%10 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			s.table.mu.Lock()
			wanted, known := len(s.ages.wanted), len(s.ages.known)
			s.table.mu.Unlock()
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
