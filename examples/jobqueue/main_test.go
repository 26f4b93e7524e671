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

// newFleet returns a fleet on a database with jobs.
func newFleet(t *testing.T, url, jobs string) (*fleet.Fleet, *sql.DB) {
	t.Helper()
	f := fleet.Test(t, "DATABASE_URL="+url)
	for _, args := range [][]string{{"-migrate"}, {"-enqueue", jobs}} {
		if out, err := f.Run(args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	return f, dbtest.Open(t, "pgx", url)
}

const done = "SELECT count(*) FROM jobs WHERE status = 'done'"

// wantOnce checks that so many jobs are done, each with one effect.
func wantOnce(t *testing.T, db *sql.DB, jobs int) {
	t.Helper()
	n := dbtest.Number(t, db, done)
	effects := dbtest.Number(t, db, "SELECT count(*) FROM mails")
	changed := dbtest.Number(t, db, "SELECT count(DISTINCT job_id) FROM mails")
	if n != jobs || effects != jobs || changed != jobs {
		t.Errorf("%d jobs: %d are done, with %d effects of %d jobs", jobs, n, effects, changed)
	}
}

// Two processes work on jobs, and stop.
func TestFleet(t *testing.T) {
	t.Parallel()
	f, db := newFleet(t, pgtest.Database(t), "100")
	f.MustStart(t)
	f.MustStart(t)
	lockertest.Eventually(t, "all jobs are done", func() bool { return fleet.Count(db, done) == 100 })
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	wantOnce(t, db, 100)
}

// Each job is done once, though processes are killed and the database crashes.
func TestLongExactlyOnce(t *testing.T) {
	t.Parallel()
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	f, db := newFleet(t, cluster.DSN(""), "6000")
	dbtest.Execute(t, db, "ANALYZE jobs")
	for range 4 {
		f.MustStart(t, "-workers", "1") // so that there is work until the last kill
	}
	f.Kills(t, 6, func() error { return cluster.Restart(true) }, func() int { return fleet.Count(db, done) }, "-workers", "1")
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	wantOnce(t, db, fleet.Count(db, done))
}

// The error does not show a URL, which may contain a password.
func TestBadURL(t *testing.T) {
	fleet.Test(t).HidesURL(t, []string{"postgres://ann:secret@host:port/x", "nonsense secret", "postgres://ann:secret@127.0.0.1:1/nowhere"})
}
