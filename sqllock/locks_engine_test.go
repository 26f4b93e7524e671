package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

var failedStatement = dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}

type calledAll struct {
	locks Locks
	err   error
}

func beginAll(ctx context.Context, s *Session, keys ...Key) <-chan calledAll {
	c := make(chan calledAll, 1)
	go func() {
		locks, err := s.TryLockAll(ctx, keys...)
		c <- calledAll{locks, err}
	}()
	synctest.Wait()
	return c
}

// A set takes one statement to acquire and one to give back, in any order of its
// keys. A key that is in the set twice is taken once.
func TestLockAllInOneStatement(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		locks, err := s.TryLockAll(background, Pair(2, 1), ID(5), ID(-5), ID(5))
		if err != nil {
			t.Fatalf("TryLockAll: %v", err)
		}
		for i, want := range []Key{ID(-5), ID(5), Pair(2, 1)} {
			if len(locks) != 3 || locks[i].Key() != want || locks[i].Err() != nil {
				t.Fatalf("locks: %v", locks)
			}
		}
		if s.Stats().Held != 3 || locks.Err() != nil {
			t.Errorf("%d locks are held; Err: %v", s.Stats().Held, locks.Err())
		}
		if err := locks.Unlock(); err != nil || !errors.Is(locks.Err(), ErrReleased) {
			t.Errorf("Unlock: %v, then Err: %v", err, locks.Err())
		}
		if n := len(server.session(0).sent()); n > 3 { // what one caller gives back by itself may go ahead of the others
			t.Errorf("%d statements for a set, want 2", n)
		}
	})
}

// A set is denied if one of its keys is held, in this process or elsewhere. No lock
// of the set is left.
func TestLockAllOrNone(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(2))
		_, err := s.TryLockAll(background, ID(1), ID(2), ID(3))
		wantErr(t, "a set with a key held elsewhere", called{err: err}, ErrHeld)
		if n := server.held(); n != 1 {
			t.Errorf("%d locks in the database, want that of the other", n)
		}
		sent := len(server.session(0).sent())
		lock := mustTry(t, s, ID(3))
		_, err = s.TryLockAll(background, ID(1), ID(3))
		wantErr(t, "a set with a key held here", called{err: err}, ErrHeld)
		if n := len(server.session(0).sent()) - sent; n != 1 {
			t.Errorf("%d statements, want that of TryLock alone", n)
		}
		mustUnlock(t, lock)
		server.giveUp(ID(2))
		waiting := begin(func() (*Lock, error) { return s.Lock(background, ID(2)) })
		mustUnlock(t, returned(t, "Lock", waiting).lock)
		locks, err := s.TryLockAll(background, ID(1), ID(2), ID(3))
		wantErr(t, "a set that is free", called{err: err}, nil)
		wantErr(t, "given back", called{err: locks.Unlock()}, nil)
	})
}

// A set waits for a key that another call requests, and is granted or denied with
// that request.
func TestLockAllJoinsQuestions(t *testing.T) {
	tests := []struct {
		name string
		also func(s *Session, server *fakeServer, ctx context.Context) // beside a set of 1 and 2, while 2 is being asked for by ctx's caller
		set  error
	}{
		{"granted to the other", func(*Session, *fakeServer, context.Context) {}, ErrHeld},
		{"held elsewhere", func(_ *Session, server *fakeServer, _ context.Context) { server.steal(ID(2)) }, ErrHeld},
	}
	for _, tt := range tests {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			hook, resume := hold(t)
			server.session(0).hooks(hook, nil)
			asking := beginTry(background, s, ID(2))
			set := beginAll(background, s, ID(1), ID(2))
			behind := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
			tt.also(s, server, background)
			resume()
			_ = returned(t, "who asks", asking)
			synctest.Wait()
			if got := <-set; !errors.Is(got.err, tt.set) {
				t.Errorf("%s: the set: %v, want %v", tt.name, got.err, tt.set)
			}
			wantErr(t, tt.name+": who stood behind the set", returned(t, "Lock", behind), nil)
		})
	}
	// The other call gives up. Its grant goes back, and the set continues.
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		ctx, cancel := context.WithCancel(background)
		asking := beginTry(ctx, s, ID(2))
		set := beginAll(background, s, ID(1), ID(2))
		crossing := beginAll(background, s, ID(2), ID(1))
		cancel()
		wantErr(t, "who gave up", returned(t, "TryLock", asking), context.Canceled)
		resume()
		synctest.Wait()
		got, crossed := <-set, <-crossing
		if got.err != nil || !errors.Is(crossed.err, ErrHeld) {
			t.Errorf("two sets that cross: %v and %v, want the first to get it", got.err, crossed.err)
		}
	})
}

// A caller that gives up a set while it is requested leaves no lock behind.
func TestLockAllGivesUp(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		ctx, cancel := context.WithCancel(background)
		set := beginAll(ctx, s, ID(1), ID(2))
		joined := beginTry(background, s, ID(2))
		cancel()
		if got := <-set; !errors.Is(got.err, context.Canceled) {
			t.Errorf("TryLockAll: %v", got.err)
		}
		resume()
		got := returned(t, "TryLock", joined)
		wantErr(t, "who joined it", got, nil)
		mustUnlock(t, got.lock)
		time.Sleep(time.Second)
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left", n)
		}
	})
}

// LockAll holds no lock while it waits. It returns when its context ends.
func TestLockAllWaits(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(2))
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		_, err := s.LockAll(ctx, ID(1), ID(2))
		wantErr(t, "LockAll whose time is up", called{err: err}, context.DeadlineExceeded)
		if n := server.held(); n != 1 {
			t.Errorf("%d locks in the database, want that of the other", n)
		}
		time.AfterFunc(time.Second, func() { server.giveUp(ID(2)) })
		locks, err := s.LockAll(background, ID(1), ID(2))
		wantErr(t, "LockAll", called{err: err}, nil)
		bound, done := locks.Bind(background)
		server.session(0).hooks(func() error { return errGone }, nil)
		_, _ = s.TryLock(background, ID(3))
		synctest.Wait()
		if cause := context.Cause(bound); cause != ErrLost || locks.Err() != ErrLost || !errors.Is(locks.Unlock(), ErrLost) {
			t.Errorf("after a loss: cause %v, Err %v", cause, locks.Err())
		}
		done()
	})
}

// The size of a set is limited by WithMaxHeld and by the room of a statement.
func TestLockAllCapacity(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		_, err := s.TryLockAll(background, ID(1), ID(2), ID(3), ID(4))
		wantErr(t, "a set of more than may be held", called{err: err}, ErrCapacity)
		server.carry(2)
		_, err = s.TryLockAll(background, ID(1), ID(2), ID(3))
		wantErr(t, "a set of more than a statement may carry", called{err: err}, ErrCapacity)
		locks, err := s.TryLockAll(background, ID(1), ID(2))
		wantErr(t, "a set", called{err: err}, nil)
		_, err = s.TryLockAll(background, ID(4), ID(3))
		wantErr(t, "a set for which there is no room any more", called{err: err}, ErrCapacity)
		wantErr(t, "given back", called{err: locks.Unlock()}, nil)
		if _, err := s.TryLockAll(background); err == nil {
			t.Error("a set of no keys: no error")
		}
	}, WithMaxHeld(3))
}

// After a statement that fails half-way, the locks that were taken of a set go
// back.
func TestLockAllIsReconciled(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		times := 0
		server.session(0).hooks(nil, func() error {
			if times++; times == 1 {
				return &failedStatement
			}
			return nil
		})
		locks, err := s.TryLockAll(background, ID(1), ID(2))
		if err == nil {
			err = locks.Unlock()
		}
		time.Sleep(time.Second)
		if n := server.held(); n != 0 || s.Stats().Held != 0 {
			t.Errorf("%v; %d locks are left in the database, %d here", err, n, s.Stats().Held)
		}
		locks, err = s.TryLockAll(background, ID(1), ID(2))
		wantErr(t, "after it", called{err: err}, nil)
		wantErr(t, "given back", called{err: locks.Unlock()}, nil)
	})
}

// A set does not overtake a waiter for one of its keys. It is denied without a
// statement.
func TestLockAllStandsBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		waits := begin(func() (*Lock, error) { return s.Lock(background, ID(1)) })
		_, err := s.TryLockAll(background, ID(1), ID(2))
		wantErr(t, "a set with a key that somebody waits for", called{err: err}, ErrHeld)
		for _, b := range server.session(0).sent() {
			if len(b.All) > 0 {
				t.Error("the set was asked for")
			}
		}
		server.giveUp(ID(1))
		time.Sleep(time.Second)
		wantErr(t, "who waits", returned(t, "Lock", waits), nil)
	})
}

// LockAll waits on while the database is away or there is no room. Its error
// names the reason when its context ends.
func TestLockAllGoesOnWaiting(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		held := Locks{mustTry(t, s, ID(8)), mustTry(t, s, ID(9))}
		got := make(chan calledAll, 1)
		go func() {
			locks, err := s.LockAll(background, ID(1), ID(2))
			got <- calledAll{locks, err}
		}()
		time.Sleep(time.Second)
		if s.Stats().Waiting != 1 {
			t.Errorf("%d wait", s.Stats().Waiting)
		}
		away := time.Now().Add(3 * time.Second)
		server.onOpen = func(int) error {
			if time.Now().Before(away) {
				return errGone
			}
			return nil
		}
		server.session(0).hooks(func() error { return errGone }, nil)
		_, _ = s.TryLock(background, ID(7))
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		_, err := s.LockAll(ctx, ID(1), ID(2))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnavailable) {
			t.Errorf("LockAll whose time is up while the database is away: %v", err)
		}
		time.Sleep(10 * time.Second)
		if r := <-got; r.err != nil || r.locks.Err() != nil {
			t.Errorf("LockAll: %v", r.err)
		}
		if err := held.Unlock(); !errors.Is(err, ErrLost) {
			t.Errorf("Unlock of what was lost: %v", err)
		}
	}, WithMaxHeld(3))
}

// The methods of Locks report the loss of any lock of the set, and leave no
// context bound.
func TestLocksTellOfAny(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		locks, err := s.TryLockAll(background, ID(1), ID(2), ID(3))
		wantErr(t, "TryLockAll", called{err: err}, nil)
		bound, done := locks.Bind(background)
		endAllLocked(locks[1:2], endLost).announce()
		if locks.Err() != ErrLost || context.Cause(bound) != ErrLost {
			t.Errorf("Err: %v, cause: %v", locks.Err(), context.Cause(bound))
		}
		done()
		for i, l := range locks {
			if n := len(l.more.bound); n != 0 {
				t.Errorf("lock %d has %d contexts bound", i, n)
			}
		}
		if err := locks.Unlock(); !errors.Is(err, ErrLost) || locks[0].Err() != ErrReleased || locks[2].Err() != ErrReleased {
			t.Errorf("Unlock: %v", err)
		}
		if (Locks)(nil).Err() != nil || (Locks)(nil).Unlock() != nil {
			t.Error("no locks tell of a loss")
		}
	})
}

// Close ends all locks with ErrClosed, also those that their holders look at
// before their turn.
func TestCloseEndsAllLocksAsClosed(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, _ *fakeServer) {
		locks, err := s.TryLockAll(background, ID(1), ID(2), ID(3))
		wantErr(t, "TryLockAll", called{err: err}, nil)
		bound, done := locks.Bind(background)
		defer done()
		var causes []error
		for _, l := range locks {
			l.OnEnd(func(cause error) {
				causes = append(causes, cause)
				for _, other := range locks {
					if err := other.Err(); err != ErrLost {
						t.Errorf("Err of a lock while Close ends another one: %v", err)
					}
				}
			})
		}
		_ = s.Close()
		if len(causes) != 3 || causes[0] != ErrClosed || causes[1] != ErrClosed || causes[2] != ErrClosed {
			t.Errorf("the locks ended with %v, want ErrClosed three times", causes)
		}
		if cause := context.Cause(bound); cause != ErrClosed {
			t.Errorf("cause of the bound context: %v, want ErrClosed", cause)
		}
	})
}
