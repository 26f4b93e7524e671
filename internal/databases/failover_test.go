package databases

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A failover to a standby that lagged takes back locks that were granted. Their
// session finds that out at its next heartbeat, however long the lease is. It
// then holds none of them next to their new holders.
func TestLongLeaseTableFailoverToLaggingStandby(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		primary := pgtest.New(t)
		standby, err := primary.Standby()
		must(t, err)
		ordersOf := func(c *pgtest.Cluster) lockertest.Orders {
			o := lockertest.Orders{Driver: driver, DSN: c.DSN(""), LeaseTable: true}
			if driver == "pgx" {
				o.DSN = inExecMode(o.DSN)
			}
			return o
		}
		server := &address{Connector: connector(t, ordersOf(primary))}
		db := sql.OpenDB(server)
		t.Cleanup(func() { _ = db.Close() })
		db.SetMaxIdleConns(-1) // the failover breaks no statement: a broken one would show it too
		s := session(t, db, sqllock.WithLeaseTable(), sqllock.WithLease(time.Hour), sqllock.WithHeartbeat(50*time.Millisecond))
		kept := mustLock(t, s, sqllock.ID(1))
		behind := open(t, driver, standby.DSN(""))
		lockertest.Eventually(t, "the standby has the first lock", func() bool {
			return number(t, behind, "SELECT count(*) FROM pg_class WHERE relname = 'latchkey_locks'") == 1 && number(t, behind, leaseRows) == 1
		})
		execute(t, behind, "ALTER SYSTEM SET primary_conninfo = ''")
		execute(t, behind, "SELECT pg_reload_conf()")
		lockertest.Eventually(t, "the standby has stopped following", func() bool {
			return number(t, behind, "SELECT count(*) FROM pg_stat_wal_receiver") == 0
		})
		lost := mustLock(t, s, sqllock.ID(2))
		lockertest.Eventually(t, "no statement is under way", func() bool {
			server.mu.Lock()
			if db.Stats().InUse == 0 {
				return true
			}
			server.mu.Unlock()
			return false
		})
		err = errors.Join(primary.Kill(), standby.Promote())
		server.next = connector(t, ordersOf(standby))
		server.mu.Unlock()
		must(t, err)
		if n := number(t, behind, leaseRows); n > 1 {
			t.Fatalf("the standby has %d locks: it did not lag", n)
		}
		other := process(t, ordersOf(standby), sqllock.WithLease(time.Hour))
		mustLock(t, other, sqllock.ID(2))
		for _, lock := range []*sqllock.Lock{lost, kept} {
			lockertest.Eventually(t, "a lock of the session that lost a commit is lost", func() bool { return lock.Err() != nil })
			if err := lock.Unlock(); err != sqllock.ErrLost {
				t.Errorf("Unlock: %v, want ErrLost", err)
			}
		}
		if _, err := s.TryLock(t.Context(), sqllock.ID(2)); errors.Is(err, sqllock.ErrLost) || err == nil {
			t.Errorf("TryLock of the key that the other session holds: %v", err)
		}
	})
}
