package lockwatch_test

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// One Snapshot has the advisory locks and the leases of a database. A lock of one
// kind and one of the other on an equal key are two locks, and no cycle leads from
// one to the other.
func TestInspectAdvisoryLocksAndLeases(t *testing.T) {
	t.Parallel()
	db := withRegistry(t, "pgx", pgtest.Database(t))
	tx, pid := patient(t, db, "SELECT pg_advisory_xact_lock(1)")
	patient(t, db, "SELECT pg_advisory_xact_lock(2)")
	dbtest.Create(t, db, sqllock.Schema(sqllock.PostgreSQL))
	dbtest.Execute(t, db, `INSERT INTO latchkey_sessions VALUES (7, now() + interval '1 hour', 1, 'host/1'), (8, 'infinity', 1, 'host/2'), (10, now() - interval '1 ms', 1, 'host/3')`)
	dbtest.Execute(t, db, `INSERT INTO latchkey_locks VALUES (0, 1, 7, now()), (0, 2, 7, now()), (1, -1, 7, now()), (0, 3, 8, now()), (0, 4, 9, now()), (0, 5, 10, now())`)
	inBackground(t, tx, "SELECT pg_advisory_xact_lock(2)")
	lockertest.Eventually(t, "a process waits", func() bool { return len(inspect(t, db).Waiters) == 1 })
	s := inspect(t, db)
	if s.Dialect != sqllock.PostgreSQL || s.Leases != lockwatch.TableRead || s.Heartbeats != lockwatch.TableRead || len(s.Holders) != 5 {
		t.Fatalf("%+v", s)
	}
	if len(s.Expired) != 1 || s.Expired[0].Key.Int64() != 5 || s.Expired[0].Lease.Session != 10 {
		t.Errorf("expired: %+v", s.Expired)
	}
	holders, waiters := s.Find(sqllock.ID(1))
	if len(holders) != 2 || len(waiters) != 0 || holders[0].Lease == nil || holders[0].Lease.Session != 7 || holders[1].Lease != nil || holders[1].Process.PID != pid {
		t.Errorf("key 1: %+v, %+v", holders, waiters)
	}
	if holders, _ := s.Find(sqllock.Pair(-1, -1)); len(holders) != 1 {
		t.Errorf("a pair: %+v", holders)
	}
	if cycles := s.Cycles(); len(cycles) != 0 {
		t.Errorf("cycles: %v", cycles)
	}
	dbtest.Execute(t, db, "CREATE SCHEMA registry") // the lease tables are in another one
	if s := inspect(t, db, lockwatch.WithSchema("registry")); s.Leases != lockwatch.TableRead || s.Heartbeats != lockwatch.TableMissing {
		t.Errorf("with the schema of a registry: %s, %s", s.Leases, s.Heartbeats)
	}
}

// patient returns a transaction in which PostgreSQL does not look for deadlocks,
// and the PID of its server process.
func patient(t *testing.T, db *sql.DB, statement string) (*sql.Tx, int) {
	t.Helper()
	tx, pid := client(t, db)
	for _, s := range []string{"SET LOCAL deadlock_timeout = '1h'", statement} {
		if _, err := tx.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return tx, pid
}
