package sqllock

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// Calls that try for the same slots at once share them in one statement.
func TestSlotsAreShared(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		slots := []Key{ID(1), ID(2), ID(3), ID(4)}
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		var calls []<-chan called
		for range 6 {
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, slots...) }))
		}
		resume()
		_ = returned(t, "blocker", blocker)
		granted, refused := 0, 0
		for _, c := range calls {
			switch got := returned(t, "TryAny", c); {
			case got.err == nil:
				granted++
			case errors.Is(got.err, ErrHeld):
				refused++
			default:
				t.Errorf("TryAny: %v", got.err)
			}
		}
		if granted != 4 || refused != 2 {
			t.Errorf("%d granted, %d refused of 4 slots and 6 callers", granted, refused)
		}
		if n := len(db.sent()); n != 2 {
			t.Errorf("%d statements, want 2", n)
		}
	})
}

// If a call for several keys gives up before its statement is sent, the keys are
// still requested for the calls that joined it.
func TestGroupGivesUpBeforeItIsSent(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		ctx, cancel := context.WithCancel(background)
		group := begin(func() (*Lock, error) { return s.TryAny(ctx, ID(1), ID(2)) })
		joined := begin(func() (*Lock, error) { return s.TryAny(background, ID(2), ID(1)) })
		waiting := begin(func() (*Lock, error) { return s.LockAny(background, ID(2), ID(1)) })
		cancel()
		wantErr(t, "who gave up", returned(t, "TryAny", group), context.Canceled)
		resume()
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		wantErr(t, "who joined", returned(t, "TryAny", joined), nil)
		wantErr(t, "who waits", returned(t, "LockAny", waiting), nil)
	})
}

// Keys of both key spaces cannot go into one group. The keys that are left out
// are requested next.
func TestLockAnyOfBothKeySpaces(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		server.steal(ID(2))
		lock, err := s.LockAny(background, ID(1), ID(2), Pair(1, 1))
		if err != nil || lock.Key() != Pair(1, 1) {
			t.Fatalf("LockAny: %v", err)
		}
	})
}

// A denial may make other calls request their keys again while the queue is being
// emptied.
func TestRefusalsWhileTheQueueIsTaken(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		calls := []<-chan called{
			begin(func() (*Lock, error) { return s.TryAny(background, ID(7), ID(5), ID(6)) }),
			begin(func() (*Lock, error) { return s.TryAny(background, ID(1), ID(5), ID(6)) }),
			beginTry(background, s, ID(5)),
			beginTry(background, s, ID(6)),
			beginTry(background, s, ID(2)),
		}
		resume()
		granted := 0
		for i, c := range calls {
			if got := returned(t, "call", c); got.err == nil {
				granted++
			} else if !errors.Is(got.err, ErrCapacity) && !errors.Is(got.err, ErrHeld) {
				t.Errorf("call %d: %v", i, got.err)
			}
		}
		if granted != 1 {
			t.Errorf("%d granted with room for one", granted)
		}
	}, WithMaxHeld(1))
}

// A call that joins a key of two groups in one statement is answered, even if
// neither group tried that key.
func TestKeyOfTwoGroups(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		groups := []<-chan called{
			begin(func() (*Lock, error) { return s.TryAny(background, ID(1), ID(2)) }),
			begin(func() (*Lock, error) { return s.TryAny(background, ID(3), ID(4), ID(2)) }),
		}
		next, resumeNext := hold(t)
		server.session(0).hooks(next, nil)
		resume()
		synctest.Wait()
		joined := beginTry(background, s, ID(2)) // while both are under way
		resumeNext()
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		for _, g := range groups {
			wantErr(t, "TryAny", returned(t, "TryAny", g), nil)
		}
		wantErr(t, "who joined", returned(t, "TryLock", joined), nil)
	})
}

// The end of one request may end others, which must not end it again. Two calls
// want the same keys while there is no connection, and one of them gives up.
func TestAsksThatEndTogether(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		keys := []Key{ID(1), ID(2), ID(3)}
		var locks []*Lock
		for _, k := range keys {
			locks = append(locks, mustTry(t, s, k))
		}
		time.Sleep(2 * time.Second) // the callers may not hand them on any longer
		hook, resume := hold(t)
		server.onOpen = func(int) error { return errGone }
		server.session(0).hooks(func() error { _ = hook(); return errGone }, nil)
		for _, l := range locks {
			_ = beginUnlock(l)
		}
		ctx, cancel := context.WithCancel(background)
		first := begin(func() (*Lock, error) { return s.TryAny(ctx, keys...) })
		second := begin(func() (*Lock, error) { return s.TryAny(background, keys...) })
		resume()
		synctest.Wait()
		// The first has given up and is about to end its request when all
		// requests end because there is no connection.
		s.table.mu.Lock()
		cancel()
		for range 100_000 {
			runtime.Gosched()
		}
		s.slots[0].failQueueLocked(errNoConnection)
		s.table.mu.Unlock()
		if got := returned(t, "first", first); got.err == nil {
			t.Error("the first got a lock")
		}
		wantErr(t, "second", returned(t, "second", second), ErrUnavailable)
	})
}

// Groups and single keys that do not fit into one statement go into the next. A
// group that is larger than any statement is denied.
func TestRoomOfAStatement(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.carry(4)
		db := server.session(0)
		hook, resume := hold(t)
		db.hooks(hook, nil)
		blocker := beginTry(background, s, ID(99))
		var calls []<-chan called
		for i := range int64(3) { // three keys each: two groups do not fit together
			calls = append(calls, begin(func() (*Lock, error) { return s.TryAny(background, ID(10*i), ID(10*i+1), ID(10*i+2)) }))
		}
		for i := range int64(6) {
			calls = append(calls, beginTry(background, s, ID(100+i)))
		}
		tooMany := begin(func() (*Lock, error) { return s.TryAny(background, ID(51), ID(52), ID(53), ID(54), ID(55)) })
		resume()
		wantErr(t, "blocker", returned(t, "blocker", blocker), nil)
		for _, c := range calls {
			wantErr(t, "one of many", returned(t, "TryLock or TryAny", c), nil)
		}
		wantErr(t, "five keys of four", returned(t, "TryAny", tooMany), ErrCapacity)
		for i, b := range db.sent() {
			keys := len(b.Release) + len(b.Try)
			for _, g := range b.Any {
				keys += len(g)
			}
			if keys > 4 {
				t.Errorf("statement %d carries %d keys, of 4", i, keys)
			}
		}
	})
}
