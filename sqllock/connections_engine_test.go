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

// checkConnections compares what s believes of its connections with what the
// server has, at one moment.
func checkConnections(t *testing.T, s *Session, server *fakeServer) {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	list := s.connectionsLocked()
	server.mu.Lock()
	defer server.mu.Unlock()
	for _, c := range list {
		i := slices.IndexFunc(server.sessions, func(f *fakeSession) bool { return int64(f.number) == c.PID })
		has := setOf(server.locks.of(server.sessions[i]))
		for _, k := range c.Held {
			if !has[k.id()] {
				t.Errorf("a key that is held is not in the database")
			}
			delete(has, k.id())
		}
		for _, k := range c.Shared {
			if !has[k.id().Shared()] {
				t.Errorf("a key that readers hold is not in the database")
			}
			delete(has, k.id().Shared())
		}
		for _, k := range c.Pending {
			delete(has, k.id())
			delete(has, k.id().Shared())
		}
		if len(has) > 0 {
			t.Errorf("the database has %d locks that the connection does not know", len(has))
		}
	}
}

var _ dialect.Backend = (*fakeSession)(nil)
