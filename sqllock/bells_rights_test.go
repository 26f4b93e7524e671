package sqllock_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A role that may not use NOTIFY holds and releases locks as before. It hears no
// bells and rings none, also while others listen.
func TestRoleThatMayNotRing(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		admin := open(t, driver, cluster.DSN(""))
		execute(t, admin, "CREATE ROLE outsider LOGIN")
		execute(t, admin, "GRANT pg_read_all_stats TO outsider")
		execute(t, admin, "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_notify(text, text) FROM PUBLIC")
		dsn := asUser(cluster.DSN(""), "outsider")
		holder, waiter := session(t, driver, dsn), session(t, driver, dsn)
		for round := range 12 { // so many failed releases would cost the connection
			lock := mustLock(t, holder, sqllock.ID(1))
			granted := wait(t.Context(), waiter, sqllock.ID(1))
			if round == 0 {
				listening := session(t, driver, cluster.DSN("")) // of another role
				wait(t.Context(), listening, sqllock.ID(1))
				awaitMarks(t, admin, 2)
				if err := listening.Close(); err != nil {
					t.Error(err)
				}
			}
			mustRelease(t, lock)
			mustRelease(t, mustBeGranted(t, granted))
		}
		for _, s := range []*sqllock.Session{holder, waiter} {
			if got := s.Stats(); got.Losses != 0 || got.Failed != 0 {
				t.Errorf("%d losses, %d calls failed", got.Losses, got.Failed)
			}
		}
	})
}
