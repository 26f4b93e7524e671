package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A TryLock that meets a release in flight is in the next statement.
func TestTryLockMeetsRelease(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		db.hooks(nil, hook)
		unlocked := beginUnlock(lock)
		next := beginTry(background, s, ID(1))
		pending(t, "Unlock", unlocked)
		pending(t, "TryLock", next)
		resume()
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		wantErr(t, "TryLock", returned(t, "TryLock", next), nil)
		if n := len(db.sent()); n != 3 {
			t.Errorf("%d statements, want 3", n)
		}
	})
}

// A TryLock that meets an ask in flight for its key gets the grant if who asked
// has given up. A refusal may be older than the call: it is asked for again, once
// for all who came meanwhile.
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
					wantErr(t, "who gave up", returned(t, "first", first), tt.first)
				}
				pending(t, "who joined", second)
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

// A grant that nobody wants any more is given back.
func TestLateGrantIsGivenBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		ctx, cancel := context.WithCancel(background)
		c := beginTry(ctx, s, ID(1))
		several := begin(func() (*Lock, error) { return s.TryAny(ctx, ID(2), ID(3)) })
		cancel()
		wantErr(t, "TryLock", returned(t, "TryLock", c), context.Canceled)
		wantErr(t, "TryAny", returned(t, "TryAny", several), context.Canceled)
		resume()
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		if got := s.Stats(); got.Held != 0 || s.table.keys.len() != 0 {
			t.Errorf("the table still holds %d and knows %d", got.Held, s.table.keys.len())
		}
	})
}

// Waiters of a process hand a key on for a second; then it goes through the
// database, and they stay away for others to come.
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

// A key that is given back elsewhere while the question about it is in flight is
// not refused to who asks after that.
func TestRefusalIsNotOlderThanTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook) // the answer is on its way
		ctx, cancel := context.WithCancel(background)
		first := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
		cancel()
		wantErr(t, "who gave up", returned(t, "Lock", first), context.Canceled)
		server.giveUp(ID(1))
		second := beginTry(background, s, ID(1))
		resume()
		wantErr(t, "TryLock of a free key", returned(t, "TryLock", second), nil)
	})
}

// Who only tries does not pass those in line, also when the key is free for the
// moment.
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
