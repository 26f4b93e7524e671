package sqllock

import (
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Each key is in the list of what the connection does with it.
func TestConnections(t *testing.T) {
	exports := Namespace("export")
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		heldKey := exports.Key("held")
		mustTry(t, s, heldKey)
		mustTry(t, s, Pair(3, 4))
		for range 2 {
			if _, err := s.TryRLock(background, ID(2)); err != nil {
				t.Fatal(err)
			}
		}
		released := mustTry(t, s, ID(3))
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		requested := beginTry(background, s, ID(4))
		unlocked := beginUnlock(released)        // behind the statement under way
		queued := beginTry(background, s, ID(5)) // not requested yet: not the connection's
		got := s.Connections()
		resume()
		<-requested
		<-unlocked
		<-queued
		if len(got) != 1 {
			t.Fatalf("%d connections, want 1", len(got))
		}
		c := got[0]
		if c.PID != 1 || !c.Start.Equal(time.Unix(1, 0)) || c.SecretChecks != 0 {
			t.Errorf("process %d since %v, %d secret checks", c.PID, c.Start, c.SecretChecks)
		}
		wantKeys(t, "Held", c.Held, ID(heldKey.Int64()), Pair(3, 4))
		wantKeys(t, "Shared", c.Shared, ID(2))
		wantKeys(t, "Pending", c.Pending, ID(3), ID(4))
	})
}

func wantKeys(t *testing.T, list string, got []Key, want ...Key) {
	t.Helper()
	if len(got) != len(want) || slices.ContainsFunc(want, func(k Key) bool { return !slices.Contains(got, k) }) {
		t.Errorf("%s: %v, want %v", list, got, want)
	}
}

var _ dialect.Backend = (*fakeSession)(nil)
