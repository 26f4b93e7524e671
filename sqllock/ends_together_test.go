package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Locks that end together have all ended before any holder is told. A holder of
// several does not give one back that is lost.
func TestLocksEndTogether(t *testing.T) {
	for name, cause := range map[string]error{"loss": ErrLost, "Close": ErrClosed} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				locks := []*Lock{mustTry(t, s, ID(1)), mustTry(t, s, ID(2))}
				var causes, unlocked []error
				contexts := []context.Context{locks[0].Context(), locks[1].Context()}
				for i, l := range locks {
					l.OnEnd(func(cause error) {
						if contexts[1-i].Err() == nil {
							t.Error("a holder is told, and the context of the other lock has not ended")
						}
						causes = append(causes, cause)
						unlocked = append(unlocked, locks[1-i].Unlock())
					})
				}
				if name == "loss" {
					server.session(0).hooks(nil, func() error { return errGone })
					if _, err := s.TryLock(background, ID(3)); !errors.Is(err, ErrUnavailable) {
						t.Errorf("TryLock whose reply was lost: %v, want ErrUnavailable", err)
					}
				} else if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if len(causes) != 2 || causes[0] != cause || causes[1] != cause {
					t.Errorf("the locks ended with %v, want %v twice", causes, cause)
				}
				for _, err := range unlocked {
					if err != ErrLost {
						t.Errorf("Unlock: %v, want ErrLost", err)
					}
				}
			})
		})
	}
}

// When the first hook of a lost connection runs, the contexts of all its locks
// have ended. Done shows that: unlike Err, it does not look at the lock.
func TestEndSeenByHolders(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var contexts []context.Context
		var done []<-chan struct{}
		told := 0
		for i := range int64(8) {
			lock := mustTry(t, s, ID(i))
			bound, cancel := lock.Bind(background)
			defer cancel()
			contexts, done = append(contexts, bound), append(done, bound.Done())
			lock.OnEnd(func(error) {
				told++
				for j := range done {
					select {
					case <-done[j]:
						if cause := context.Cause(contexts[j]); cause != ErrLost {
							t.Errorf("context %d ended with %v, want ErrLost", j, cause)
						}
					default:
						t.Errorf("the hook of lock %d is called, and context %d has not ended", i, j)
					}
				}
			})
		}
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(100))
		synctest.Wait()
		if told != len(done) {
			t.Errorf("%d hooks were called, want %d", told, len(done))
		}
	})
}

// The context of a lock ends with it, also while the goroutine that ends the
// lock has not come to the contexts.
func TestContextEndsWithItsLock(t *testing.T) {
	for _, how := range []uint32{endLost, endClosed} {
		simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
			lock := mustTry(t, s, ID(1))
			bound, cancel := lock.Bind(background)
			defer cancel()
			other, cancelOther := lock.Bind(background)
			defer cancelOther()
			awaited, cancelAwaited := lock.Bind(background)
			defer cancelAwaited()
			child, cancelChild := context.WithTimeout(awaited, time.Hour)
			defer cancelChild()
			another := mustTry(t, s, ID(2))
			var sets []context.Context // the lost lock is the outer one, and the inner one
			for _, set := range []Locks{{another, lock}, {lock, another}} {
				bound, cancel := set.Bind(background)
				defer cancel()
				_ = bound.Done()
				sets = append(sets, bound)
			}
			ended := endAllLocked([]*Lock{lock}, how)
			if err, cause := awaited.Err(), context.Cause(child); err != context.Canceled || cause != endCauses[how] {
				t.Errorf("a context that has a child: %v, cause of the child %v, want %v", err, cause, endCauses[how])
			}
			for _, set := range sets {
				if err, cause := set.Err(), context.Cause(set); err != context.Canceled || cause != endCauses[how] {
					t.Errorf("a context of two locks: %v, cause %v, want %v", err, cause, endCauses[how])
				}
			}
			if bound.Err() != context.Canceled || context.Cause(bound) != endCauses[how] {
				t.Errorf("a bound context: %v, cause %v, want %v", bound.Err(), context.Cause(bound), endCauses[how])
			}
			if cause := context.Cause(other); cause != endCauses[how] {
				t.Errorf("the cause of a context that was not asked before: %v, want %v", cause, endCauses[how])
			}
			ended.announce()
			if cause := context.Cause(bound); cause != endCauses[how] {
				t.Errorf("the cause afterwards: %v, want %v", cause, endCauses[how])
			}
		})
	}
}
