package sqllock

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A TryLock that meets a request under way for its key gets the grant if the
// first caller has given up. A denial may be older than the call. So the key is
// requested again, once for all calls that came meanwhile.
func TestTryLockJoins(t *testing.T) {
	tests := []struct {
		name               string
		heldElsewhere      bool
		giveUp             bool
		first, second      error
		third              error
		statements, locked int
	}{
		{"granted", false, false, nil, ErrHeld, ErrHeld, 1, 1},
		{"held elsewhere", true, false, ErrHeld, ErrHeld, ErrHeld, 2, 1},
		{"given up", false, true, context.Canceled, nil, ErrHeld, 1, 1},
		{"given up and held elsewhere", true, true, context.Canceled, ErrHeld, ErrHeld, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				db := server.session(0)
				if tt.heldElsewhere {
					server.steal(ID(1))
				}
				hook, resume := hold(t)
				db.hooks(hook, nil)
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				first := beginTry(ctx, s, ID(1))
				second := beginTry(background, s, ID(1))
				third := beginTry(background, s, ID(1))
				if tt.giveUp {
					cancel()
					wantErr(t, "the first, which gave up", returned(t, "first", first), tt.first)
				}
				pending(t, "the second", second)
				resume()
				if !tt.giveUp {
					wantErr(t, "first", returned(t, "first", first), tt.first)
				}
				wantErr(t, "second", returned(t, "second", second), tt.second)
				wantErr(t, "third", returned(t, "third", third), tt.third)
				if n := len(db.sent()); n != tt.statements {
					t.Errorf("%d statements, want %d", n, tt.statements)
				}
				if n := server.held(); n != tt.locked {
					t.Errorf("%d locks in the database, want %d", n, tt.locked)
				}
			})
		})
	}
}

// The callers of a process hand a key on among themselves for a second. Then they
// give it back, and wait a little before they request it, so that other processes
// can get it.
func TestHandOverYields(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		statements := len(server.session(0).sent())
		for i := range 20 {
			next := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			mustUnlock(t, lock)
			got := <-next
			wantErr(t, "Lock", got, nil)
			lock = got.lock
			away := time.Since(before)
			n := len(server.session(0).sent()) - statements
			if second := i%10 == 9; !second && (away != 0 || n != 0) {
				t.Errorf("hand-over %d took %v and %d statements, want none", i, away, n)
			} else if second && (away < pollMax || n != 2) {
				t.Errorf("after a second the key was taken again after %v, with %d statements; want %v or more, and 2", away, n, pollMax)
			}
			statements += n
		}
	})
}

// A call is not denied by a response that is older than the call: another session
// may have given the key back since.
func TestRefusalIsNotOlderThanTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook) // the response is on its way
		ctx, cancel := context.WithCancel(background)
		first := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
		cancel()
		wantErr(t, "the first, which gave up", returned(t, "Lock", first), context.Canceled)
		server.giveUp(ID(1))
		second := beginTry(background, s, ID(1))
		resume()
		wantErr(t, "TryLock of a free key", returned(t, "TryLock", second), nil)
	})
}

// A TryLock does not overtake waiters, even while the key is free.
func TestTryLockDoesNotPassWaiters(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		server.giveUp(ID(1))
		if _, err := s.TryLock(background, ID(1)); !errors.Is(err, ErrHeld) {
			t.Errorf("TryLock beside a waiter: %v, want ErrHeld", err)
		}
		time.Sleep(pollMax)
		mustUnlock(t, returned(t, "Lock", waiting).lock)
		mustUnlock(t, mustTry(t, s, ID(1)))
	})
}
