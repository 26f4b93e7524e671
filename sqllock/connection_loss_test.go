package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// If a statement has no response for the lease, all locks are lost. The lease
// counts from the moment at which the last answered statement was sent.
func TestLeaseRunsOut(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		released := mustTry(t, s, ID(1))
		db := server.session(0)
		db.hooks(func() error { time.Sleep(300 * time.Millisecond); return nil }, nil)
		sent := time.Now() // not when it was answered
		lock := mustTry(t, s, ID(2))
		hook, _ := hold(t)
		db.hooks(nil, hook)
		unlocked := beginUnlock(released)
		<-lock.Context().Done()
		if cause := context.Cause(lock.Context()); cause != ErrLost {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		// 10 s, less a thousandth, less a fifth.
		if got, want := time.Since(sent), 7990*time.Millisecond; got != want {
			t.Errorf("lost %v after its statement was sent, want %v", got, want)
		}
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), ErrUnavailable)
		// It serves again on another connection, though the first is stuck.
		mustUnlock(t, mustTry(t, s, ID(3)))
		if server.opens != 2 {
			t.Errorf("%d connections were opened, want 2", server.opens)
		}
		db.mu.Lock()
		defer db.mu.Unlock()
		if !db.aborted {
			t.Error("the socket under the stuck statement was not closed")
		}
	})
}

// If the server does not have a lock that is given back, the connection is lost
// with all its locks.
func TestUnlockOfWhatIsNotHeld(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		one, other := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		server.steal(ID(1))
		if err := one.Unlock(); err != ErrLost {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		synctest.Wait()
		if err := other.Err(); err != ErrLost {
			t.Errorf("Err of another lock of the connection: %v, want ErrLost", err)
		}
		if server.opens != 2 {
			t.Errorf("%d connections were opened, want 2", server.opens)
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
	})
}

// A statement that fails half-way costs no lock while the session lives. The
// engine asks the server which locks the session holds.
func TestStatementFailsHalfWay(t *testing.T) {
	failure := &dialect.Failure{Kind: dialect.Full, Reason: "no room"}
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		kept, released := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(3))
		unlocked := beginUnlock(released)
		taken := beginTry(background, s, ID(4)) // the statement takes it before it fails
		var refused <-chan called
		resumed := make(chan struct{})
		db.hooks(nil, func() error {
			db.hooks(nil, nil)
			server.giveUp(ID(5)) // as if this one had not been taken
			close(resumed)
			return failure
		})
		refused = beginTry(background, s, ID(5))
		resume()
		<-resumed
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		wantErr(t, "what was taken", returned(t, "taken", taken), nil)
		wantErr(t, "what was not", returned(t, "refused", refused), ErrCapacity)
		if err := kept.Err(); err != nil {
			t.Errorf("Err of a lock beside a failed statement: %v", err)
		}
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
		mustUnlock(t, kept)
		mustUnlock(t, mustTry(t, s, ID(5)))
	})
}

// After a failover to a server whose locks do not exclude, calls return
// ErrNotExclusive. The Session serves again once locks exclude.
func TestReconnectsToWhatDoesNotExclude(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.onOpen = func(n int) error {
			if n < 5 {
				return &dialect.Failure{Kind: dialect.NotExclusive, Reason: "a standby"}
			}
			return nil
		}
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(9)) })
		mustUnlock(t, returned(t, "Lock", waiting).lock)
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		synctest.Wait()
		if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrNotExclusive) {
			t.Errorf("TryLock: %v, want ErrNotExclusive", err)
		}
		waiter := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		pending(t, "Lock", waiter)
		time.Sleep(ticks)
		wantErr(t, "who waited", returned(t, "Lock", waiter), nil)
	})
}

// Calls made while the Session reconnects wait for it, up to a second.
func TestCallsDuringReconnection(t *testing.T) {
	for _, tt := range []struct {
		takes time.Duration
		want  error
	}{
		{500 * time.Millisecond, nil},
		{3 * time.Second, ErrUnavailable},
	} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			server.onOpen = func(int) error { time.Sleep(tt.takes); return nil }
			server.session(0).hooks(nil, func() error { return errGone })
			_, _ = s.TryLock(background, ID(1))
			asked := time.Now()
			_, err := s.TryLock(background, ID(2))
			if !errors.Is(err, tt.want) {
				t.Errorf("TryLock during a reconnection of %v: %v, want %v", tt.takes, err, tt.want)
			}
			if waited := time.Since(asked); waited > time.Second {
				t.Errorf("it took %v", waited)
			}
			time.Sleep(ticks)
			mustTry(t, s, ID(3))
		})
	}
}

// A response after the deadline grants nothing, even before the timer has fired.
// A process that was frozen reads such a response when it wakes up.
func TestAnswerAfterTheDeadline(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		held := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook)
		late := beginTry(background, s, ID(2))
		held.life.(*connection).deadline.Store(int64(now()))
		resume()
		wantErr(t, "TryLock", returned(t, "TryLock", late), ErrUnavailable)
		if err := held.Err(); err != ErrLost {
			t.Errorf("Err: %v, want ErrLost", err)
		}
	})
}

// A lock whose lease has passed is not handed on to a waiter.
func TestNoHandOverOfWhatIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		blocker := beginTry(background, s, ID(2))
		unlocked := beginUnlock(lock) // waits for the next statement
		lock.life.(*connection).deadline.Store(int64(now()))
		next := beginTry(background, s, ID(1))
		resume()
		synctest.Wait()
		if got := returned(t, "TryLock", next); got.err == nil && got.lock.life == lock.life {
			t.Error("a key of a lease that has run out was handed on")
		}
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), ErrLost)
		_ = returned(t, "blocker", blocker)
	})
}

// After a stall a new call has its full time.
func TestAfterAStall(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		db := server.session(0)
		hook, resume := hold(t)
		db.hooks(hook, nil)
		stalled := beginTry(background, s, ID(2))
		time.Sleep(time.Second)
		_ = beginUnlock(lock)
		time.Sleep(time.Second)
		db.hooks(func() error { time.Sleep(50 * time.Millisecond); return nil }, nil)
		resume()
		wantErr(t, "TryLock during the stall", returned(t, "TryLock", stalled), ErrUnavailable)
		time.Sleep(10 * time.Millisecond)
		mustUnlock(t, mustTry(t, s, ID(3)))
	})
}

// The engine's own time limit for connecting is not reported as the end of the
// caller's context.
func TestOwnDeadlineIsNotTheCallers(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		gate := make(chan struct{})
		defer close(gate)
		server.onOpen = func(int) error { <-gate; return nil }
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		time.Sleep(2 * dialect.ConnectTimeout)
		_, err := s.TryLock(background, ID(1))
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v, want ErrUnavailable and no context's error", err)
		}
	})
}
