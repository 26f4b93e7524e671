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
