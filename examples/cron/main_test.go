package main

import (
	"database/sql"
	"strings"
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

// number is what query yields, or -1 while the database is away.
func number(db *sql.DB, query string) (n int) {
	if db.QueryRow(query).Scan(&n) != nil {
		return -1
	}
	return n
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
		return number(db, "SELECT count(DISTINCT job) FROM cron_example_runs") == 2
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
	goesOn := func() {
		t.Helper()
		var before int
		lockertest.Eventually(t, "the database responds", func() bool {
			before = number(db, "SELECT count(ended) FROM cron_example_runs")
			return before >= 0
		})
		lockertest.Eventually(t, "jobs go on", func() bool { return number(db, "SELECT count(ended) FROM cron_example_runs") > before+2 })
	}
	goesOn()
	for _, i := range f.Running()[:2] {
		lockertest.Eventually(t, "a run goes on", func() bool {
			return number(db, "SELECT count(*) FROM cron_example_runs WHERE ended IS NULL AND began > clock_timestamp() - interval '200 ms'") > 0
		})
		if err := i.Kill(); err != nil {
			t.Fatal(err)
		}
		f.MustStart(t, "-takes", "500ms")
	}
	goesOn()
	if err := cluster.Restart(true); err != nil { // a crash
		t.Fatal(err)
	}
	goesOn()
	once(t, db)
	t.Logf("%d runs, of which %d were cut off; no tick was run twice",
		number(db, "SELECT count(*) FROM cron_example_runs"), number(db, "SELECT count(*) FROM cron_example_runs WHERE ended IS NULL"))
}

// A database that is not there is an error that does not show its URL.
func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"postgres://clerk:sesame@127.0.0.1:1/nowhere", "postgres://clerk:sesame@%zz"} {
		out, err := fleet.Test(t, "DATABASE_URL="+url).Run()
		if err == nil {
			t.Error("it ends as if all was well")
		}
		for _, secret := range []string{"clerk", "sesame", "127.0.0.1", "nowhere"} {
			if strings.Contains(out, secret) {
				t.Errorf("it shows a part of the URL: %s", out)
			}
		}
	}
}
