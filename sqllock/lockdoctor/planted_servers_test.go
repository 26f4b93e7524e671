package lockdoctor_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock/lockdoctor"
)

// Misconfigurations that need a server of their own.

// For a lease table a transaction pooler is no fault.
func TestPlantedPooler(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	bouncer, err := cluster.PgBouncer("transaction", 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		r := examine(t, dbtest.Open(t, driver, fit(driver, bouncer.DSN(""))))
		mustFind(t, r, "exclusion", lockdoctor.Error, "WithLeaseTable()")
		if clock, _ := r.Find("clock"); (clock.State == lockdoctor.Skipped) != (driver == "pgx") {
			t.Errorf("pgx prepares statements, lib/pq does not; the clock: %+v", clock)
		}
		leases := dbtest.Open(t, driver, execMode(driver, fit(driver, bouncer.DSN(""))))
		mustBeHealthy(t, examine(t, leases, lockdoctor.WithLeaseTable()))
	}
}

func TestPlantedStandby(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t)
	standby, err := cluster.Standby()
	if err != nil {
		t.Fatal(err)
	}
	for _, driver := range pgtest.Drivers() {
		r := examine(t, dbtest.Open(t, driver, standby.DSN("")))
		mustFind(t, r, "primary", lockdoctor.Error, "target_session_attrs=read-write")
		mustFind(t, r, "exclusion", lockdoctor.Error, "onnect to the primary")
	}
}

// The table of locks is filled by another program. The places that it takes at
// rest differ between versions, so the test fills it up to a part.
func TestPlantedFullLockTable(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_locks_per_transaction": "10", "max_connections": "40"}))
	db := dbtest.Open(t, "pgx", cluster.DSN(""))
	const size = 10 * 40
	hog := dbtest.Conn(t, db)
	for _, tt := range []struct {
		places int
		state  lockdoctor.State
	}{
		{size * 55 / 100, lockdoctor.Warning},
		{size * 70 / 100, lockdoctor.Error},
	} {
		dbtest.ExecuteOn(t, hog, "SELECT pg_advisory_unlock_all()")
		dbtest.ExecuteOn(t, hog, fmt.Sprintf("SELECT pg_advisory_lock(n) FROM generate_series(1, %d) AS n", tt.places))
		mustFind(t, examine(t, db), "lock-table", tt.state, "Raise max_locks_per_transaction to at least ")
	}
}

func TestPlantedClock(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithClock())
	db := dbtest.Open(t, "pgx", cluster.DSN(""))
	for _, step := range []time.Duration{time.Minute, -2 * time.Minute} {
		if err := cluster.StepClock(step); err != nil {
			t.Fatal(err)
		}
		mustFind(t, examine(t, db), "clock", lockdoctor.Warning, "NTP")
	}
}

// The database of the Session is away, and so is the one that is examined.
func TestPlantedOutage(t *testing.T) {
	dbtest.EachCluster(t, func(t *testing.T, driver string, cluster *pgtest.Cluster) {
		dsn := fit(driver, cluster.DSN(""))
		s := dbtest.Session(t, driver, dsn)
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the connection is lost", func() bool { return s.Stats().Connections == 0 })
		r := examine(t, dbtest.Open(t, driver, dsn), lockdoctor.WithSession(s))
		mustFind(t, r, "connection", lockdoctor.Error, "the server runs")
		mustFind(t, r, "session", lockdoctor.Error, "the log of the Session")
		if r.Dialect != "" {
			t.Errorf("dialect %q of a server that is away", r.Dialect)
		}
		other := dbtest.Open(t, driver, pgtest.Database(t))
		mustFind(t, examine(t, other, lockdoctor.WithSession(s)), "session", lockdoctor.Error, "the log of the Session")
	})
}

// An ordinary role cannot have the connections that are reserved: for
// superusers, and since PostgreSQL 16 also for roles with a certain right.
func TestPlantedReservedConnections(t *testing.T) {
	for _, tt := range []struct {
		setting, value string
		major          int
	}{
		{"superuser_reserved_connections", "18", 14},
		{"reserved_connections", "15", 16}, // and 3 for superusers
	} {
		t.Run(tt.setting, func(t *testing.T) {
			t.Parallel()
			cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"max_connections": "20"}))
			p := newPlace(t, "pgx", cluster, 0)
			since(t, p.admin, tt.major)
			p.execute(t, "ALTER SYSTEM SET "+tt.setting+" = "+tt.value)
			if err := cluster.Restart(false); err != nil {
				t.Fatal(err)
			}
			dbtest.ExecuteOn(t, dbtest.Conn(t, dbtest.Open(t, "pgx", cluster.DSN(""))), "SELECT 1") // one of the two that are left
			p.db.SetMaxOpenConns(2)
			// The server may still be ending the connection that has shown that it is up.
			lockertest.Eventually(t, "the other one is free", func() bool { return p.db.PingContext(t.Context()) == nil })
			mustFind(t, examine(t, p.db), "connections", lockdoctor.Error, "Raise max_connections")
		})
	}
}

// A pool whose connections are all in use cannot be examined any further.
func TestPlantedFullPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := dbtest.Hollow(func(context.Context) error { return nil })
		defer db.Close()
		db.SetMaxOpenConns(2)
		dbtest.Conn(t, db)
		dbtest.Conn(t, db)
		r := examine(t, db)
		mustFind(t, r, "pool", lockdoctor.Warning, "a pool of its own")
		mustFind(t, r, "connection", lockdoctor.Error, "pool")
	})
}

// A server that is frozen does not keep Check from returning, even if the driver
// is stuck. It is no fault of a pool that may open more connections.
func TestFrozenServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		thaw := make(chan struct{})
		for _, tt := range []struct {
			wait func(context.Context) error
			fix  string
		}{
			{func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "Check that the server responds, and that the scheme"},
			{func(context.Context) error { <-thaw; return nil }, "Check that the server runs"}, // it ignores its context
		} {
			db := dbtest.Hollow(tt.wait)
			defer db.Close()
			mustFind(t, examine(t, db), "connection", lockdoctor.Error, tt.fix)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if r, err := lockdoctor.Check(ctx, db); err == nil {
				mustFind(t, r, "connection", lockdoctor.Error, "the server") // shortly before the deadline
			} else if err != context.DeadlineExceeded { //nolint:errorlint // the error itself
				t.Errorf("Check: %v, %v", r, err)
			}
		}
		close(thaw)
		synctest.Wait()
	})
}
