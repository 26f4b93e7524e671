package sqllock

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A statement asks whether a key beyond a group is held, and requests this key
// for another caller as well. The server carries out that request first, so the
// key counts as held.
func TestTryEachBesideRequestForKeyBeyond(t *testing.T) {
	for name, other := range map[string]func(*Session) <-chan called{
		"TryEach of one key": func(s *Session) <-chan called { return beginEach(background, s, ids(11)) },
		"TryAny": func(s *Session) <-chan called {
			return begin(func() (*Lock, error) { return s.TryAny(background, ids(11, 12)...) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				hook, resume := hold(t)
				server.session(0).hooks(hook, nil)
				busy := beginTry(t.Context(), s, ID(9)) // its statement is under way
				limited := beginEach(waiting.WithTerms(t.Context(), waiting.Terms{Beyond: [][]int64{{11}}}), s, ids(10))
				beyond := other(s)
				server.session(0).hooks(nil, nil)
				resume()
				if got := returned(t, "TryLock", busy); got.err != nil {
					t.Errorf("TryLock: %v", got.err)
				}
				if got := returned(t, "the call for the key beyond", beyond); got.err != nil {
					t.Errorf("the call for the key beyond: %v", got.err)
				}
				wantFull(t, returned(t, "the TryEach over its limit", limited), 0)
			})
		})
	}
}
