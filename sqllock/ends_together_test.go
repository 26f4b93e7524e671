package sqllock

import (
	"context"
	"errors"
	"runtime"
	"sync"
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

// While a connection ends, holders look on and give their locks back. A holder
// that has found one lock lost finds that all are, with their contexts.
func TestEndSeenByHolders(t *testing.T) {
	const rounds, n = 20, 64
	for range rounds {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			var locks []*Lock
			var contexts []context.Context
			causes := make([]error, n)
			for i := range n {
				l := mustTry(t, s, ID(int64(i)))
				bound, cancel := l.Bind(background)
				defer cancel()
				if i%2 == 0 {
					_ = bound.Done() // somebody waits for it
				}
				l.OnEnd(func(cause error) { causes[i] = cause })
				locks, contexts = append(locks, l), append(contexts, bound)
			}
			conn := locks[0].life.(*connection)
			var holders sync.WaitGroup
			for i := range 2 { // holders of two locks each
				first, second := i, n-1-i
				holders.Go(func() {
					for locks[first].Err() == nil {
					}
					if err := contexts[first].Err(); err == nil {
						t.Error("Err of a lock says that it is lost, and its context has not ended")
					}
					if err := context.Cause(contexts[first]); err != ErrLost {
						t.Errorf("the cause is %v, want ErrLost", err)
					}
					if err := locks[second].Unlock(); err != ErrLost {
						t.Errorf("Unlock: %v, want ErrLost", err)
					}
					if err := contexts[second].Err(); err == nil {
						t.Error("the context of the other lock has not ended")
					}
				})
			}
			runtime.Gosched()
			conn.loseConnection(lossLease)
			holders.Wait()
			for i, cause := range causes {
				if cause != ErrLost {
					t.Errorf("lock %d ended with %v, want ErrLost", i, cause)
				}
			}
		})
	}
}

// An Unlock does not release a lock whose connection is about to end it.
func TestUnlockWhileTheConnectionEnds(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		lock := mustTry(t, s, ID(1))
		conn := lock.life.(*connection)
		var told error
		lock.OnEnd(func(cause error) { told = cause })
		begun, unlocked := make(chan struct{}), make(chan error)
		s.table.mu.Lock()
		conn.markDeadLocked()
		go func() {
			close(begun)
			unlocked <- lock.Unlock()
		}()
		<-begun
		for range 1000 {
			runtime.Gosched()
		}
		ended := endAllLocked([]*Lock{lock}, endLost)
		s.table.mu.Unlock()
		ended.announce()
		if err := <-unlocked; err != ErrLost || told != ErrLost {
			t.Errorf("Unlock: %v, and the holder was told %v; want ErrLost twice", err, told)
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
