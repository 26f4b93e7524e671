package databases

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/mariadbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// leaseTableOn returns the orders of a process with a lease table on server.
func leaseTableOn(driver string, server *pgtest.Cluster) lockertest.Orders {
	o := lockertest.Orders{Driver: driver, DSN: server.DSN(""), LeaseTable: true}
	if driver == "pgx" {
		o.DSN = inExecMode(o.DSN)
	}
	return o
}

// Two standbys that are promoted separately are both on timeline 2. A holder on
// one passes no fence on the other.
func TestLeaseTableFenceOfStandbysPromotedSeparately(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			primary := pgtest.New(t)
			db := open(t, driver, primary.DSN(""))
			create(t, db, sqllock.Schema(sqllock.PostgreSQL), sqllock.FenceSchema(sqllock.PostgreSQL))
			execute(t, db, "CREATE TABLE work (who INTEGER)")
			var holders []*sqllock.Lock
			var pools []*sql.DB
			for range 2 {
				standby, err := primary.Standby()
				if err != nil {
					t.Fatal(err)
				}
				there := open(t, driver, standby.DSN(""))
				lockertest.Eventually(t, "the standby has the tables", func() bool {
					return number(t, there, "SELECT count(*) FROM pg_class WHERE relname = 'work'") == 1
				})
				if err := standby.Promote(); err != nil {
					t.Fatal(err)
				}
				if len(pools) == 0 { // the log of this standby is ahead
					execute(t, there, "INSERT INTO work SELECT 0 FROM generate_series(1, 50000)")
				}
				pools = append(pools, there)
				holders = append(holders, mustLock(t, process(t, leaseTableOn(driver, standby)), sqllock.ID(1)))
			}
			stranger, rightful, second := holders[0], holders[1], pools[1]
			if err := fencedWork(t, pools[0], stranger, 1); err != nil {
				t.Errorf("the first one's holder, on the first: %v", err)
			}
			for range 2 {
				if err := fencedWork(t, second, stranger, 2); err != sqllock.ErrFenced {
					t.Errorf("the first one's holder, on the second: %v, want ErrFenced", err)
				}
				if err := fencedWork(t, second, rightful, 3); err != nil {
					t.Errorf("the second one's holder, on the second: %v", err)
				}
			}
			if n := number(t, second, "SELECT count(*) FROM work WHERE who IN (1, 2)"); n > 0 {
				t.Errorf("the first one's holder wrote %d times on the second", n)
			}
		})
	}
}

// The locks of a lease table outlive a restart of the server, and are fenced
// after it as before. This holds for locks that had a token and for locks that
// had none.
func TestLeaseTableFenceAfterRestart(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			server := pgtest.New(t)
			db := open(t, driver, server.DSN(""))
			create(t, db, sqllock.Schema(sqllock.PostgreSQL), sqllock.FenceSchema(sqllock.PostgreSQL))
			execute(t, db, "CREATE TABLE work (who INTEGER)")
			s := process(t, leaseTableOn(driver, server), sqllock.WithLease(time.Hour))
			first, second := mustLock(t, s, sqllock.ID(1)), mustLock(t, s, sqllock.ID(2))
			if err := fencedWork(t, db, first, 1); err != nil {
				t.Fatalf("Fence: %v", err)
			}
			if err := server.Restart(false); err != nil {
				t.Fatal(err)
			}
			lockertest.Eventually(t, "the pool has noticed", func() bool { return db.Ping() == nil })
			for range 2 {
				for i, lock := range []*sqllock.Lock{first, second} {
					lockertest.Eventually(t, "the session's pool has noticed", func() bool {
						err := fencedWork(t, db, lock, i)
						if errors.Is(err, sqllock.ErrFenced) {
							t.Fatalf("Fence of lock %d after the restart: %v", i+1, err)
						}
						return err == nil
					})
				}
			}
			for _, lock := range []*sqllock.Lock{first, second} {
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
}

// Two replicas that are promoted separately take tokens from copies of one
// counter. A holder on one passes no fence on the other.
func TestMySQLFenceOfReplicasPromotedSeparately(t *testing.T) {
	t.Parallel()
	var holders []*sqllock.Lock
	var pools []*sql.DB
	for range 2 {
		server := mariadbtest.New(t)
		o := lockertest.Orders{Driver: "mysql", DSN: server.Database(t)}
		db := open(t, o.Driver, o.DSN)
		create(t, db, sqllock.Schema(sqllock.MySQL), sqllock.FenceSchema(sqllock.MySQL))
		execute(t, db, "CREATE TABLE work (who INTEGER)")
		// Both replicas have this row from their primary.
		execute(t, db, "UPDATE latchkey_tokens SET system_id = 1, server_hash = 1, epoch = 1, number = 1")
		pools = append(pools, db)
		holders = append(holders, mustLock(t, process(t, o), sqllock.ID(1)))
	}
	stranger, rightful, second := holders[0], holders[1], pools[1]
	if err := fencedWork(t, second, rightful, 1); err != nil {
		t.Fatalf("the second one's holder, on the second: %v", err)
	}
	if err := fencedWork(t, pools[0], stranger, 2); err != nil { // its number is the greater one
		t.Errorf("the first one's holder, on the first: %v", err)
	}
	for range 2 {
		if err := fencedWork(t, second, stranger, 2); err != sqllock.ErrFenced {
			t.Errorf("the first one's holder, on the second: %v, want ErrFenced", err)
		}
		if err := fencedWork(t, second, rightful, 3); err != nil {
			t.Errorf("the second one's holder, on the second again: %v", err)
		}
	}
	if n := number(t, second, "SELECT count(*) FROM work WHERE who = 2"); n > 0 {
		t.Errorf("the first one's holder wrote %d times on the second", n)
	}
}
