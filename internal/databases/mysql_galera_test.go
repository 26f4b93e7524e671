package databases

import (
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// galeraNode starts a node, which the end of the test closes.
func galeraNode(t *testing.T, other *mariadbtest.GaleraNode) *mariadbtest.GaleraNode {
	t.Helper()
	node, err := mariadbtest.StartGalera(other)
	if errors.Is(err, mariadbtest.ErrNoGalera) {
		t.Skip(err)
	}
	must(t, err)
	t.Cleanup(func() {
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})
	return node
}

// refuses fails the test unless Open rejects the server of dsn with a reason
// that has the word says, and the doctor gives the same reason. A node closes
// its clients' connections while it joins or leaves: nothing is known of it
// then, and the next connection is asked.
func refuses(t *testing.T, state, dsn, says string) {
	t.Helper()
	db := open(t, "mysql", dsn)
	lockertest.Eventually(t, state+" is refused", func() bool {
		s, err := sqllock.Open(t.Context(), db)
		switch {
		case err == nil:
			_ = s.Close()
			t.Fatalf("%s: Open accepted the server", state)
		case errors.Is(err, sqllock.ErrUnavailable):
			return false
		case !errors.Is(err, sqllock.ErrNotExclusive) || !strings.Contains(err.Error(), says):
			t.Fatalf("%s: Open: %v, want ErrNotExclusive that says %q", state, err, says)
		}
		return true
	})
	lockertest.Eventually(t, "the doctor refuses "+state, func() bool {
		r, err := lockdoctor.Check(t.Context(), db)
		if err != nil {
			return false
		}
		c, _ := r.Find("exclusion")
		if c.State == lockdoctor.OK {
			t.Fatalf("%s: the doctor accepts the server", state)
		}
		return c.State == lockdoctor.Error && strings.Contains(c.Reason, says) && c.Fix != ""
	})
}

// awaitRefusal waits until s, whose server has become another one, is refused
// with a reason that has the word says.
func awaitRefusal(t *testing.T, s *sqllock.Session, key sqllock.Key, says string) {
	t.Helper()
	lockertest.Eventually(t, "the Session is refused, with the reason", func() bool {
		_, err := s.TryLock(t.Context(), key)
		if err == nil {
			t.Fatal("TryLock was granted")
		}
		return errors.Is(err, sqllock.ErrNotExclusive) && strings.Contains(err.Error(), says)
	})
}

// Open and the doctor reject each node of a cluster of Galera, in every state
// in which the node accepts connections.
func TestLongGaleraIsRefused(t *testing.T) {
	t.Parallel()
	first := galeraNode(t, nil)
	must(t, first.Execute("CREATE DATABASE app"))
	const galera = "Galera cluster"
	refuses(t, "a cluster of one node", first.DSN("app"), galera)

	second := galeraNode(t, first)
	refuses(t, "a node that has just joined", second.DSN("app"), galera)

	awaitStatus(t, first.Server, "wsrep_cluster_size", "2")
	awaitStatus(t, second.Server, "wsrep_local_state_comment", "Synced")
	for _, node := range []*mariadbtest.GaleraNode{first, second} {
		refuses(t, "a node of two", node.DSN("app"), galera)
		refuses(t, "wsrep_on=OFF in the session", node.DSN("app")+"?wsrep_on=OFF", galera)
	}
	for _, step := range []struct{ name, statement, undo, variable, want string }{
		{"wsrep_on=OFF in the node", "SET GLOBAL wsrep_on=OFF", "SET GLOBAL wsrep_on=ON", "wsrep_connected", "ON"},
		{"a node cut off from the cluster", "SET GLOBAL wsrep_provider_options='gmcast.isolate=1'", "SET GLOBAL wsrep_provider_options='gmcast.isolate=0'", "wsrep_cluster_status", "non-Primary"},
		{"a node that has left", "SET GLOBAL wsrep_cluster_address=''", "", "wsrep_cluster_status", "Disconnected"},
	} {
		run(t, second.Server, step.statement)
		awaitStatus(t, second.Server, step.variable, step.want)
		refuses(t, step.name, second.DSN("app"), galera)
		run(t, second.Server, step.undo)
		if step.undo != "" {
			awaitStatus(t, second.Server, "wsrep_local_state_comment", "Synced")
		}
	}
}
