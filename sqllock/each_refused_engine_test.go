package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A call that is too large is denied alone. Another caller that wants one of its
// keys gets the key.
func TestTryEachTooLargeAlone(t *testing.T) {
	beyond := make([]int64, maxProbes+1)
	for i := range beyond {
		beyond[i] = int64(1000 + i)
	}
	for _, tt := range []struct {
		name   string
		held   []Key // before the call
		groups [][]Key
		terms  waiting.Terms
	}{
		{"more groups than WithMaxHeld", nil, [][]Key{ids(1), ids(2), ids(3), ids(4)}, waiting.Terms{}},
		{"more keys beyond than a statement asks about", nil, [][]Key{ids(1, 2)}, waiting.Terms{Beyond: [][]int64{beyond}}},
		{"more groups than there is room for", ids(7, 8), [][]Key{ids(1), ids(2)}, waiting.Terms{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				for _, key := range tt.held {
					mustTry(t, s, key)
				}
				hook, resume := hold(t)
				server.session(0).hooks(hook, nil)
				busy := beginTry(t.Context(), s, ID(9)) // its statement is under way
				server.steal(ID(9))
				large := beginEach(waiting.WithTerms(t.Context(), tt.terms), s, tt.groups...)
				small := beginEach(t.Context(), s, ids(1))
				server.session(0).hooks(nil, nil)
				resume()
				wantErr(t, "the large TryEach", returned(t, "the large TryEach", large), ErrCapacity)
				if got := returned(t, "the small TryEach", small); got.err != nil {
					t.Errorf("a call for one of its keys: %v", got.err)
				}
				wantErr(t, "TryLock", returned(t, "TryLock", busy), ErrHeld)
			}, WithMaxHeld(3))
		})
	}
}

// A call that has got all its keys from this process, while it stood in the
// queue of a connection that does not answer, gets its locks.
func TestTryEachReservedInAQueueThatFails(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		var locks Locks
		for i := range int64(5) { // four on the first connection, and one on the second
			locks = append(locks, mustTry(t, s, ID(i)))
			synctest.Wait()
		}
		if err := locks[1:4].Unlock(); err != nil {
			t.Fatal(err)
		}
		first, second, passing := server.session(0), server.session(1), locks[4]
		server.steal(ID(20))
		hookFirst, resumeFirst := hold(t)
		first.hooks(hookFirst, nil)
		stalled := beginTry(t.Context(), s, ID(30))   // on the first
		call := beginEach(t.Context(), s, ids(20, 4)) // in its queue
		hookSecond, resumeSecond := hold(t)
		second.hooks(hookSecond, nil)
		other := beginEach(t.Context(), s, ids(20)) // on the second, which has fewer
		unlock := beginUnlock(passing)              // behind it
		second.hooks(nil, nil)
		resumeSecond()
		wantFull(t, returned(t, "the TryEach of a key that is held", other), 0)
		pending(t, "the TryEach in the queue", call)

		time.Sleep(answerTimeout)
		got := returned(t, "the TryEach in the queue", call)
		if got.err != nil || got.lock.Key() != ID(4) {
			t.Errorf("TryEach, whose key has passed to it: %v", got.err)
		}
		wantErr(t, "TryLock on the first", returned(t, "TryLock", stalled), ErrUnavailable)
		if got := returned(t, "Unlock", unlock); got.err != nil {
			t.Errorf("Unlock: %v", got.err)
		}
		first.hooks(nil, nil)
		resumeFirst()
	}, withPerConn(3), WithMaxConns(2))
}
