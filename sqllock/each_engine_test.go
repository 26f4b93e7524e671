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

// Of many callers at once as many are admitted as there are places. A place that
// was taken away counts while its key is held, and so do places held elsewhere.
// A rejected call holds nothing.
func TestTryEachAdmitsNoMoreThanTheLimit(t *testing.T) {
	for _, tt := range []struct {
		places, heldElsewhere int64
		beyond                []int64
		beyondHeld            int
		want                  int
	}{
		{places: 3, want: 3},
		{places: 7, heldElsewhere: 2, want: 5},
		{places: 7, heldElsewhere: 2, beyond: []int64{90, 91, 92, 93}, beyondHeld: 3, want: 2},
		{places: 40, heldElsewhere: 2, beyond: []int64{90, 91, 92, 93}, beyondHeld: 3, want: 35},
		{places: 40, heldElsewhere: 39, want: 1},
		{places: 40, heldElsewhere: 38, beyond: []int64{90, 91}, beyondHeld: 2, want: 0},
	} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			var limit []Key
			for i := range tt.places {
				limit = append(limit, ID(100+i))
				if i >= tt.places-tt.heldElsewhere {
					server.steal(limit[i])
				}
			}
			for _, id := range tt.beyond[:tt.beyondHeld] {
				server.steal(ID(id))
			}
			ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{tt.beyond}})
			hook, resume := hold(t)
			server.session(0).hooks(hook, nil)
			busy := beginTry(t.Context(), s, ID(99)) // all calls queue up behind its statement
			var calls []<-chan called
			for range 64 {
				calls = append(calls, beginEach(ctx, s, limit))
			}
			resume()
			admitted := 0
			for _, call := range calls {
				if got := returned(t, "TryEach", call); got.err == nil {
					admitted++
				} else {
					wantFull(t, got, 0)
				}
			}
			if admitted != tt.want {
				t.Errorf("%d of %d places: %d calls were admitted, want %d", tt.heldElsewhere, tt.places, admitted, tt.want)
			}
			mustUnlock(t, returned(t, "TryLock", busy).lock)
			synctest.Wait()
			if n, want := server.held(), admitted+int(tt.heldElsewhere)+tt.beyondHeld; n != want || s.Stats().Held != admitted {
				t.Errorf("%d locks in the database, want %d; %d are held here", n, want, s.Stats().Held)
			}
		})
	}
}

// A call that is too large is denied alone. Another caller that wants one of its
// keys gets the key.
func TestTryEachTooLargeAlone(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		busy := beginTry(t.Context(), s, ID(9)) // its statement is under way
		large := beginEach(t.Context(), s, ids(1), ids(2), ids(3), ids(4))
		small := beginEach(t.Context(), s, ids(1))
		resume()
		wantErr(t, "TryLock", returned(t, "TryLock", busy), nil)
		wantErr(t, "more groups than WithMaxHeld", returned(t, "TryEach", large), ErrCapacity)
		wantErr(t, "a call for one of its keys", returned(t, "TryEach", small), nil)
	}, WithMaxHeld(3))
}
