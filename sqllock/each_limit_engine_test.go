package sqllock

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

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

// overLimit begins calls for one of the keys of limit. Three keys beyond it are
// held elsewhere, and the first two of limit. It returns the results once all
// goroutines wait.
func overLimit(t *testing.T, s *Session, server *fakeServer, limit []Key, callers int) (results []called) {
	t.Helper()
	for _, key := range append(ids(91, 92, 93), limit[:2]...) {
		server.steal(key)
	}
	ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{{90, 91, 92, 93}}})
	hook, resume := hold(t)
	server.session(0).hooks(hook, nil)
	busy := beginTry(t.Context(), s, ID(99))
	var calls []<-chan called
	for range callers {
		calls = append(calls, beginEach(ctx, s, limit))
	}
	server.session(0).hooks(nil, nil)
	resume()
	for _, call := range calls {
		results = append(results, returned(t, "TryEach", call))
	}
	mustUnlock(t, returned(t, "TryLock", busy).lock)
	synctest.Wait()
	return results
}

// A flood of calls over a lowered limit costs few statements, and none of them
// is kept waiting by those that come later.
func TestTryEachFloodOverLimit(t *testing.T) {
	for _, n := range []int64{5, 40} { // a narrow group and a wide one: three places beside those taken, and none
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			var limit []Key
			for i := range n {
				limit = append(limit, ID(100+i))
				if i >= 5 {
					server.steal(ID(100 + i))
				}
			}
			for _, got := range overLimit(t, s, server, limit, 64) {
				wantFull(t, got, 0)
			}
			if sent := len(server.session(0).sent()); sent > 12 {
				t.Errorf("%d statements", sent)
			}
			if s.table.held != 0 || s.table.keys.len() != 0 {
				t.Errorf("%d keys are held, %d key states", s.table.held, s.table.keys.len())
			}
		})
	}
}

// Calls at a lowered limit that has places left get exactly these.
func TestTryEachPlacesUnderLoweredLimit(t *testing.T) {
	for _, n := range []int64{7, 40} {
		simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
			var limit []Key
			for i := range n {
				limit = append(limit, ID(100+i))
			}
			admitted := 0
			for _, got := range overLimit(t, s, server, limit, 64) {
				if got.err == nil {
					admitted++
				} else if !errors.Is(got.err, ErrHeld) {
					t.Error(got.err)
				}
			}
			if want := int(n) - 5; admitted != want {
				t.Errorf("%d calls were admitted, want %d", admitted, want)
			}
		})
	}
}

// An admission under a lowered limit looks at a few keys of a wide group, while
// none beyond is held.
func TestTryEachWideGroupUnderLoweredLimit(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var limit []Key
		for i := range int64(100) {
			limit = append(limit, ID(100+i))
		}
		ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{{90, 91}}})
		got := returned(t, "TryEach", beginEach(ctx, s, limit))
		sent := server.session(0).sent()
		if got.err != nil || len(sent) != 1 || len(sent[0].Each[0].Keys) > fewCandidates {
			t.Fatalf("%v after %d statements", got.err, len(sent))
		}
	})
}

// Calls with different limits of one id wait for each other's responses, but
// never without end.
func TestTryEachMixedLimits(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.session(0).hooks(func() error { time.Sleep(time.Millisecond); return nil }, nil)
		slots := ids(1, 2, 3, 4, 5, 6)
		server.steal(slots[5])
		var wg sync.WaitGroup
		for i := range 24 {
			limit := 3 + i%3
			var beyond []int64
			for _, key := range slots[limit:] {
				beyond = append(beyond, key.Int64())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ctx = waiting.WithTerms(ctx, waiting.Terms{Beyond: [][]int64{beyond}})
			wg.Go(func() {
				for range 30 {
					locks, err := s.TryEach(ctx, [][]Key{slots[:limit]})
					if err != nil && !errors.Is(err, ErrHeld) {
						t.Error(err)
					}
					time.Sleep(time.Duration(i%5) * 400 * time.Microsecond)
					if err := locks.Unlock(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// A rejection over a limit that is older than a call does not decide it.
func TestTryEachOverLimitBeforeTheCall(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(9))
		ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{{9}}})
		hook, resume := hold(t)
		server.session(0).hooks(nil, hook) // the statement has looked at the keys
		first := beginEach(ctx, s, ids(1))
		server.giveUp(ID(9))
		second := beginEach(ctx, s, ids(1))
		server.session(0).hooks(nil, nil)
		resume()
		wantFull(t, returned(t, "the first TryEach", first), 0)
		if got := returned(t, "the second TryEach", second); got.err != nil {
			t.Errorf("a call that came after the place was free: %v", got.err)
		}
	})
}

// Two calls that are each over the limit of another group do not wait for each
// other: both widen that group, and want the other one too.
func TestTryEachOverLimitOfDifferentGroups(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		for _, key := range ids(91, 92, 93, 94) {
			server.steal(key)
		}
		beyond := []int64{91, 92, 93, 94}
		one, two := ids(1, 2, 3, 4, 5, 6), ids(11, 12, 13, 14, 15, 16)
		limits := func(groups ...[]int64) context.Context {
			return waiting.WithTerms(t.Context(), waiting.Terms{Beyond: groups})
		}
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		busy := beginTry(t.Context(), s, ID(99))
		first := beginEach(limits(beyond, nil), s, one, two)
		second := beginEach(limits(nil, beyond), s, one, two)
		server.session(0).hooks(nil, nil)
		resume()
		for _, call := range []<-chan called{first, second} {
			if got := returned(t, "TryEach", call); got.err != nil && !errors.Is(got.err, ErrHeld) {
				t.Error(got.err)
			}
		}
		mustUnlock(t, returned(t, "TryLock", busy).lock)
	})
}

// While a key beyond a wide group is held, an admission looks at a few of the
// group's keys still.
func TestTryEachWideGroupWithOneBeyond(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var limit []Key
		for i := range int64(100) {
			limit = append(limit, ID(100+i))
		}
		server.steal(ID(91))
		ctx := waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{{91}}})
		got := returned(t, "TryEach", beginEach(ctx, s, limit))
		if sent := server.session(0).sent(); got.err != nil || len(sent) != 1 || len(sent[0].Each[0].Keys) > fewCandidates {
			t.Errorf("%v after %d statements", got.err, len(sent))
		}
	})
}
