package sqllock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
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

// Two calls that have each reserved a key do not wait for the other's. One is
// rejected, and the other gets the key.
func TestTryEachWaitsForNoReservedKey(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		one, two := mustTry(t, s, ID(1)), mustTry(t, s, ID(2))
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		busy := beginTry(t.Context(), s, ID(9))
		beginUnlock(one)
		first := beginEach(t.Context(), s, ids(1), ids(9, 2))
		beginUnlock(two)
		second := beginEach(t.Context(), s, ids(2), ids(9, 1))
		server.session(0).hooks(nil, nil)
		resume() // ID(9) goes to the caller that was first
		wantFull(t, returned(t, "the first TryEach", first), 1)
		if got := returned(t, "the second TryEach", second); got.err != nil {
			t.Errorf("the key that the first has passed on: %v", got.err)
		}
		mustUnlock(t, returned(t, "TryLock", busy).lock)
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

// ids returns the keys of numbers.
func ids(numbers ...int64) (keys []Key) {
	for _, n := range numbers {
		keys = append(keys, ID(n))
	}
	return keys
}

// Groups that make no sense are an error, which is not ErrHeld.
func TestTryEachBadGroups(t *testing.T) {
	tests := []struct {
		name   string
		groups [][]Key
		want   error
	}{
		{"none", nil, errNoGroups},
		{"empty", [][]Key{ids(1), {}}, errEmptyGroup},
		{"a key in two", [][]Key{ids(1, 2), ids(3, 2)}, errTwoGroups},
		{"a pair", [][]Key{{Pair(1, 1)}}, errPairGroups},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := NewMemory()
			if _, err := m.TryEach(t.Context(), tt.groups); !errors.Is(err, tt.want) || errors.Is(err, ErrHeld) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if m.table.keys.len() != 0 {
				t.Error("a key is left in the table")
			}
		})
	}
}
