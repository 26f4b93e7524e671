package sqllock_test

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// promoted returns a pool on a new standby of primary. It promotes the standby
// once that has everything the primary has written.
func promoted(t *testing.T, driver string, primary *pgtest.Cluster) (db *sql.DB, dsn string) {
	t.Helper()
	standby, err := primary.Standby()
	if err != nil {
		t.Fatal(err)
	}
	db = open(t, driver, standby.DSN(""))
	lockertest.Eventually(t, "the standby has the fence's row", func() bool {
		return number(t, db, "SELECT count(*) FROM pg_class WHERE relname = 'work'") == 1 &&
			number(t, db, "SELECT count(*) FROM latchkey_fence") == 1
	})
	if err := standby.Promote(); err != nil {
		t.Fatal(err)
	}
	return db, standby.DSN("")
}

// Two standbys that are promoted separately are both on timeline 2, and their
// logs are two histories. A holder on one passes no fence on the other. It does
// not keep the rightful holder there from its work.
func TestLongFenceOfStandbysPromotedSeparately(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, primary *pgtest.Cluster) {
		key := sqllock.ID(1)
		db := fenced(t, driver, primary.DSN(""))
		before := mustLock(t, session(t, driver, primary.DSN("")), key)
		if err := fencedWork(t.Context(), t, db, before, "before"); err != nil {
			t.Fatal(err)
		}
		first, firstDSN := promoted(t, driver, primary)
		second, secondDSN := promoted(t, driver, primary)
		if a, b := timeline(t, first), timeline(t, second); a != b {
			t.Fatalf("the timelines are %d and %d, want one number", a, b)
		}

		// The first one's log is far ahead of the second one's.
		execute(t, first, "INSERT INTO work SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
		stranger := mustLock(t, session(t, driver, firstDSN), key)
		if err := fencedWork(t.Context(), t, first, stranger, "on the first"); err != nil {
			t.Fatalf("the first one's holder, on the first: %v", err)
		}
		rightful := mustLock(t, session(t, driver, secondDSN), key)
		for _, lock := range []*sqllock.Lock{stranger, before} {
			mustBeFenced(t, second, lock, "before the rightful holder")
		}
		for range 2 {
			if err := fencedWork(t.Context(), t, second, rightful, "rightful"); err != nil {
				t.Errorf("the second one's holder, on the second: %v", err)
			}
			for _, lock := range []*sqllock.Lock{stranger, before} {
				mustBeFenced(t, second, lock, "after the rightful holder")
			}
		}
		if err := stranger.Err(); err != nil {
			t.Errorf("the first one's holder has lost its lock on the first: %v", err)
		}
		if err := fencedWork(t.Context(), t, first, stranger, "still on the first"); err != nil {
			t.Errorf("the first one's holder, on the first again: %v", err)
		}
	})
}

// A lock ends with the server that granted it. A holder that has not noticed
// passes no fence of the restarted server.
func TestFenceAfterRestart(t *testing.T) {
	eachCluster(t, func(t *testing.T, driver string, server *pgtest.Cluster) {
		db := fenced(t, driver, server.DSN(""))
		stale := mustLock(t, session(t, driver, server.DSN(""), unaware()...), sqllock.ID(1))
		if err := fencedWork(t.Context(), t, db, stale, "before"); err != nil {
			t.Fatal(err)
		}
		if err := server.Restart(false); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the pool has noticed", func() bool { return db.Ping() == nil })
		mustBeFenced(t, db, stale, "stale")
		if err := stale.Err(); err != nil {
			t.Errorf("the holder has noticed: %v", err)
		}
		lock := mustLock(t, session(t, driver, server.DSN("")), sqllock.ID(1))
		if err := fencedWork(t.Context(), t, db, lock, "after"); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// mustBeFenced checks that lock is stale for db, and that its work there is
// rejected.
func mustBeFenced(t *testing.T, db *sql.DB, lock *sqllock.Lock, who string) {
	t.Helper()
	token := tokenIn(t, db)
	if err := fencedWork(t.Context(), t, db, lock, who); err != sqllock.ErrFenced {
		t.Errorf("Fence %s: %v, want ErrFenced", who, err)
	}
	if written(t, db, who) {
		t.Errorf("%s: a stale holder's work is in the database", who)
	}
	if now := tokenIn(t, db); now != token {
		t.Errorf("%s: the fence's row is %s, and was %s", who, now, token)
	}
}

func tokenIn(t *testing.T, db *sql.DB) (token string) {
	t.Helper()
	if err := db.QueryRow("SELECT format('%s/%s', timeline, lsn) FROM latchkey_fence WHERE key_id = 1").Scan(&token); err != nil {
		t.Fatal(err)
	}
	return token
}

func timeline(t *testing.T, db *sql.DB) int {
	t.Helper()
	return number(t, db, "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int")
}
