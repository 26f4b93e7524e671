package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// beginEach begins a TryEach, and returns when all goroutines wait.
func beginEach(ctx context.Context, s *Session, groups ...[]Key) <-chan called {
	return begin(func() (*Lock, error) {
		locks, err := s.TryEach(ctx, groups)
		if err != nil {
			return nil, err
		}
		return locks[0], nil
	})
}

// wantFull fails the test unless the call reports that group is full.
func wantFull(t *testing.T, got called, group int) {
	t.Helper()
	var full *GroupError
	if !errors.As(got.err, &full) || full.Group != group {
		t.Fatalf("got %v, want group %d to be full", got.err, group)
	}
}

// An admission is one statement with a few candidates, however many keys the
// group has. A rejection has tried all of them.
func TestTryEachWideGroup(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		wide := make([]Key, 100)
		for i := range wide {
			wide[i] = ID(int64(100 + i))
		}
		locks, err := s.TryEach(t.Context(), [][]Key{ids(1), wide})
		sent := server.session(0).sent()
		if err != nil || len(sent) != 1 || len(sent[0].Each) != 2 || len(sent[0].Each[1].Keys) > fewCandidates {
			t.Fatalf("%v after %d statements", err, len(sent))
		}
		if err := locks.Unlock(); err != nil {
			t.Fatal(err)
		}
		for _, key := range wide {
			server.steal(key)
		}
		wantFull(t, returned(t, "TryEach", beginEach(t.Context(), s, ids(1), wide)), 1)
		asked := make(map[int64]bool)
		for _, b := range server.session(0).sent()[2:] {
			for _, k := range b.Each[1].Keys {
				asked[k.ID] = true
			}
		}
		if len(asked) != len(wide) || s.table.keys.len() != 0 || s.table.held != 0 {
			t.Errorf("%d keys were tried; %d key states, %d held", len(asked), s.table.keys.len(), s.table.held)
		}
		server.giveUp(wide[42])
		if got := returned(t, "TryEach", beginEach(t.Context(), s, wide, ids(1))); got.err != nil || got.lock.Key() != wide[42] {
			t.Errorf("the one free key was not found: %v", got.err)
		}
	})
}

// A call does not take a key for which another caller of the process waits.
func TestTryEachDoesNotOvertake(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		ctx, cancel := context.WithCancel(t.Context())
		waiter := begin(func() (*Lock, error) { return s.Lock(ctx, ID(1)) })
		server.giveUp(ID(1)) // the waiter pauses
		wantFull(t, returned(t, "TryEach", beginEach(t.Context(), s, ids(2), ids(1))), 1)
		cancel()
		wantErr(t, "Lock", returned(t, "Lock", waiter), context.Canceled)
	})
}

// A key that another call of the process requests is not full yet: the call
// waits for the response.
func TestTryEachWaitsForResponses(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		server.steal(ID(3))
		first := beginEach(t.Context(), s, ids(1), ids(3)) // takes ID(1) and gives it back
		second := beginEach(t.Context(), s, ids(2), ids(1))
		pending(t, "the second TryEach", second)
		server.session(0).hooks(nil, nil)
		resume()
		wantFull(t, returned(t, "the first TryEach", first), 1)
		if got := returned(t, "the second TryEach", second); got.err != nil {
			t.Errorf("the key that the first gave back: %v", got.err)
		}
	})
}

// A caller that leaves gets no locks, and none stays behind.
func TestTryEachAbandoned(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook)
		ctx, cancel := context.WithCancel(t.Context())
		call := beginEach(ctx, s, ids(1), ids(2, 3))
		waiter := begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(2)) })
		cancel()
		wantErr(t, "TryEach", returned(t, "TryEach", call), context.Canceled)
		server.session(0).hooks(nil, nil)
		resume()
		lock := returned(t, "Lock", waiter)
		if lock.err != nil {
			t.Fatalf("the key of a caller that has left: %v", lock.err)
		}
		mustUnlock(t, lock.lock)
		synctest.Wait()
		if n := server.held(); n != 0 || s.table.keys.len() != 0 {
			t.Errorf("%d locks are left, %d key states", n, s.table.keys.len())
		}
	})
}

// A key that is being released passes to the call at once. If another group is
// full it is released after all, or passes on.
func TestTryEachReserves(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		server.steal(ID(2))
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		busy := beginTry(t.Context(), s, ID(9)) // its statement is under way
		unlock := beginUnlock(lock)
		call := beginEach(t.Context(), s, ids(1), ids(2))
		if got := returned(t, "Unlock", unlock); got.err != nil {
			t.Fatalf("Unlock of a key that passes on: %v", got.err)
		}
		another := beginTry(t.Context(), s, ID(1))
		pending(t, "TryLock of a key that is reserved", another)
		server.session(0).hooks(nil, nil)
		resume()
		wantFull(t, returned(t, "TryEach", call), 1)
		if got := returned(t, "TryLock", another); got.err != nil {
			t.Errorf("the key that was reserved: %v", got.err)
		}
		mustUnlock(t, returned(t, "TryLock", busy).lock)
		for _, b := range server.session(0).sent() {
			for _, k := range b.Release {
				if k.ID == 1 {
					t.Error("the key went through the database")
				}
			}
		}
	})
}

// A connection that is lost ends a call that had reserved a key of it.
func TestTryEachReservedKeyIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		hook, resume := hold(t)
		server.session(0).hooks(func() error { _ = hook(); return errGone }, nil)
		busy := beginTry(t.Context(), s, ID(9))
		unlock := beginUnlock(lock)
		call := beginEach(t.Context(), s, ids(1), ids(2))
		resume()
		wantErr(t, "TryEach", returned(t, "TryEach", call), ErrUnavailable)
		wantErr(t, "TryLock", returned(t, "TryLock", busy), ErrUnavailable)
		returned(t, "Unlock", unlock)
		synctest.Wait()
		if s.table.held != 0 || s.table.keys.len() != 0 {
			t.Errorf("%d keys are held, %d key states", s.table.held, s.table.keys.len())
		}
	})
}

// Keys beyond a group count, whether this process holds them or another.
func TestTryEachBeyond(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{nil, {13, 14}}})
		limit := ids(10, 11, 12)
		here := mustTry(t, s, ID(13))
		server.steal(ID(14))
		one := returned(t, "TryEach", beginEach(ctx, s, limit[:1], ids(20, 21, 22)))
		if one.err != nil {
			t.Fatalf("a third place of three, with two taken away: %v", one.err)
		}
		mustUnlock(t, one.lock)
		wantFull(t, returned(t, "TryEach", beginEach(ctx, s, ids(1), ids(30, 31))), 1)
		server.steal(ID(31))
		wantFull(t, returned(t, "TryEach", beginEach(ctx, s, ids(1), ids(30, 31, 32))), 1)
		mustUnlock(t, here)
		if got := returned(t, "TryEach", beginEach(ctx, s, ids(1), ids(30, 31, 32))); got.err != nil {
			t.Errorf("after an end beyond the group: %v", got.err)
		}
	})
}

// Waiters are served in the order of their ranks, and then of their arrival.
func TestRank(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ranks []uint64
		order []int
	}{
		{"none", []uint64{0, 0, 0}, []int{0, 1, 2}},
		{"equal", []uint64{7, 7, 7}, []int{0, 1, 2}},
		{"falling", []uint64{3, 2, 1}, []int{2, 1, 0}},
		{"mixed", []uint64{5, 1, 5, 0, 1}, []int{3, 1, 4, 0, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				lock := mustTry(t, s, ID(1))
				served := make(chan int, len(tt.ranks))
				for i, rank := range tt.ranks {
					ctx := waiting.WithTerms(t.Context(), waiting.Terms{Rank: rank})
					begin(func() (*Lock, error) {
						lock, err := s.LockAny(ctx, ID(1), ID(1))
						served <- i
						return nil, errors.Join(err, lock.Unlock())
					})
				}
				mustUnlock(t, lock)
				for _, want := range tt.order {
					if got := <-served; got != want {
						t.Errorf("caller %d was served, want %d", got, want)
					}
				}
			})
		})
	}
}
