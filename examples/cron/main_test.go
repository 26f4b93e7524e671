package main

import (
	"database/sql"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/fleet"
	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	fleet.Main(main)
	dbtest.Main(m)
}

// newFleet returns a fleet on a database with the tables.
func newFleet(t *testing.T, url string) (*fleet.Fleet, *sql.DB) {
	t.Helper()
	f := fleet.Test(t, "DATABASE_URL="+url)
	if out, err := f.Run("-migrate"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return f, dbtest.Open(t, "pgx", url)
}

// once checks that no tick was run twice, and no run overlapped another of its job.
func once(t *testing.T, db *sql.DB) {
	t.Helper()
	for what, query := range map[string]string{
		"ticks were run twice": "SELECT count(*) FROM (SELECT FROM cron_example_runs GROUP BY job, tick HAVING count(*) > 1) AS ticks",
		"runs overlapped": `SELECT count(*) FROM cron_example_runs a JOIN cron_example_runs b
			ON a.job = b.job AND a.tick < b.tick WHERE b.began < a.ended`,
	} {
		if n := dbtest.Number(t, db, query); n != 0 {
			t.Errorf("%d %s", n, what)
		}
	}
}

// Two instances run ticks of each job, and finish their runs when they stop.
func TestFleet(t *testing.T) {
	t.Parallel()
	f, db := newFleet(t, pgtest.Database(t))
	f.MustStart(t)
	f.MustStart(t)
	lockertest.Eventually(t, "both jobs are run", func() bool {
		return fleet.Count(db, "SELECT count(DISTINCT job) FROM cron_example_runs") == 2
	})
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	once(t, db)
	if n := dbtest.Number(t, db, "SELECT count(*) FROM cron_example_runs WHERE ended IS NULL"); n != 0 {
		t.Errorf("%d runs were cut off", n)
	}
}

// Instances are killed in the middle of a run, and the database crashes. The others
// go on, and no tick is run twice.
func TestLongKills(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	f, db := newFleet(t, cluster.DSN(""))
	for range 3 {
		f.MustStart(t, "-takes", "500ms")
	}
	f.Kills(t, 4, func() error { return cluster.Restart(true) }, func() int {
		return fleet.Count(db, "SELECT count(ended) FROM cron_example_runs")
	}, "-takes", "500ms")
	once(t, db)
}

// A database that is not there is an error that does not show its URL.
func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	fleet.Test(t).HidesURL(t, []string{"postgres://ann:secret@127.0.0.1:1/nowhere", "postgres://ann:secret@%zz"})
}
