package sqllock_test

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A role that may not read pg_locks acquires locks like any other. Only
// WithMaxHeld limits them.
func TestRoleThatMayNotLook(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		admin := open(t, driver, cluster.DSN(""))
		execute(t, admin, "CREATE ROLE outsider LOGIN")
		execute(t, admin, "REVOKE SELECT ON pg_catalog.pg_locks FROM PUBLIC")
		s := session(t, driver, asUser(cluster.DSN(""), "outsider"), sqllock.WithHeartbeat(20*time.Millisecond))
		staysHeld(t, s, mustLock(t, s, sqllock.ID(1)))
	})
}

// Other clients fill the lock table. Locks stay held, although the server
// rejects the query that counts the table's entries.
func TestOthersFillTheLockTable(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		s := session(t, driver, cluster.DSN(""), sqllock.WithHeartbeat(20*time.Millisecond))
		lock := mustLock(t, s, sqllock.ID(1))
		conn, err := open(t, driver, cluster.DSN("")).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for n := 100; err == nil; n++ {
			_, err = conn.ExecContext(t.Context(), "SELECT pg_advisory_lock($1)", n)
		}
		staysHeld(t, s, lock)
	}, pgtest.WithSettings(map[string]string{"max_connections": "20", "max_locks_per_transaction": "10"}))
}

// staysHeld fails if s loses lock in several heartbeats.
func staysHeld(t *testing.T, s *sqllock.Session, lock *sqllock.Lock) {
	t.Helper()
	before := s.Stats()
	lockertest.Eventually(t, "heartbeats", func() bool { return s.Stats().Exchanges >= before.Exchanges+8 || lock.Err() != nil })
	if err := lock.Err(); err != nil {
		t.Errorf("the lock: %v", err)
	}
	if n := s.Stats().Losses; n != 0 {
		t.Errorf("%d connections were lost", n)
	}
}
