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

// leaseTableOn returns the orders of a process with a lease table on server.
func leaseTableOn(driver string, server *pgtest.Cluster) lockertest.Orders {
	return lockertest.Orders{Driver: driver, DSN: unprepared(driver, server.DSN("")), LeaseTable: true}
}

// fencesApart checks the fences of two servers that were promoted separately. The
// holder of the first passes no fence of the second, before and after the holder
// of the second has passed it.
func fencesApart(t *testing.T, pools []*sql.DB, holders []*sqllock.Lock) {
	t.Helper()
	if err := fencedWork(t, pools[0], holders[0], 0); err != nil {
		t.Errorf("the first one's holder, on the first: %v", err)
	}
	for range 2 {
		if err := fencedWork(t, pools[1], holders[0], 2); err != sqllock.ErrFenced {
			t.Errorf("the first one's holder, on the second: %v, want ErrFenced", err)
		}
		if err := fencedWork(t, pools[1], holders[1], 3); err != nil {
			t.Errorf("the second one's holder, on the second: %v", err)
		}
	}
	if n := number(t, pools[1], "SELECT count(*) FROM work WHERE who = 2"); n > 0 {
		t.Errorf("the first one's holder wrote %d times on the second", n)
	}
}

// Two standbys that are promoted separately are both on timeline 2. A holder on
// one passes no fence on the other.
func TestLongLeaseTableFenceOfStandbysPromotedSeparately(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		primary := pgtest.New(t)
		db := open(t, driver, primary.DSN(""))
		create(t, db, sqllock.Schema(sqllock.PostgreSQL))
		withWork(t, leaseTableOn(driver, primary), db)
		var holders []*sqllock.Lock
		var pools []*sql.DB
		for range 2 {
			standby, err := primary.Standby()
			must(t, err)
			there := open(t, driver, standby.DSN(""))
			lockertest.Eventually(t, "the standby has the tables", func() bool {
				return number(t, there, "SELECT count(*) FROM pg_class WHERE relname = 'work'") == 1
			})
			must(t, standby.Promote())
			if len(pools) == 0 { // the log of this standby is ahead
				execute(t, there, "INSERT INTO work SELECT 0 FROM generate_series(1, 50000)")
			}
			pools = append(pools, there)
			holders = append(holders, mustLock(t, process(t, leaseTableOn(driver, standby)), sqllock.ID(1)))
		}
		fencesApart(t, pools, holders)
	})
}

// The locks of a lease table outlive a restart and a crash of the server, because
// the tables are on disk. They are fenced after it as before, whether they had a
// token or not. Meanwhile calls return ErrUnavailable.
func TestLongLeaseTableServerRestarts(t *testing.T) {
	eachDriver(t, func(t *testing.T, driver string) {
		server := pgtest.New(t)
		o := leaseTableOn(driver, server)
		db := open(t, driver, server.DSN(""))
		withWork(t, o, db)
		const lease = 59 * time.Second // longer than a restart takes
		s, other := process(t, o, sqllock.WithLease(lease)), process(t, o, sqllock.WithLease(lease))
		for _, stop := range []func() error{server.Stop, server.Kill} {
			first, second := mustLock(t, s, sqllock.ID(1)), mustLock(t, s, sqllock.ID(2))
			if err := fencedWork(t, db, first, 1); err != nil {
				t.Fatalf("Fence: %v", err)
			}
			must(t, stop())
			if _, err := s.TryLock(t.Context(), sqllock.ID(3)); !errors.Is(err, sqllock.ErrUnavailable) {
				t.Errorf("TryLock without a server: %v, want ErrUnavailable", err)
			}
			must(t, server.StartAgain())
			lockertest.Eventually(t, "the pool has noticed", func() bool { return db.Ping() == nil })
			for _, l := range []sqllock.Locker{s, other} { // each asks the server again after a pause
				awaitGrant(t, "the server grants again", l, sqllock.ID(3))
			}
			if _, err := other.TryLock(t.Context(), sqllock.ID(1)); !errors.Is(err, sqllock.ErrHeld) {
				t.Errorf("TryLock of a key that is held since before the restart: %v, want ErrHeld", err)
			}
			for range 2 {
				for i, lock := range []*sqllock.Lock{first, second} {
					lockertest.Eventually(t, "the lock is fenced", func() bool {
						err := fencedWork(t, db, lock, i)
						if errors.Is(err, sqllock.ErrFenced) {
							t.Fatalf("Fence of lock %d after the restart: %v", i+1, err)
						}
						return err == nil
					})
				}
			}
			mustUnlock(t, first)
			mustUnlock(t, second)
		}
	})
}
