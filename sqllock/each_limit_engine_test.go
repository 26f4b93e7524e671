package sqllock

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

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
