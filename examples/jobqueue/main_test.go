package main

import (
	"database/sql"
	"math/rand/v2"
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

// number is what query yields, or -1 while the database is away.
func number(db *sql.DB, query string) (n int) {
	if db.QueryRow(query).Scan(&n) != nil {
		return -1
	}
	return n
}

const done = "SELECT count(*) FROM jobs WHERE status = 'done'"

// wantOnce checks that each job is done, with one effect.
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
	lockertest.Eventually(t, "all jobs are done", func() bool { return number(db, done) == 100 })
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	wantOnce(t, db, 100)
}

// Each job is done once, though processes are killed and the database crashes.
func TestLongExactlyOnce(t *testing.T) {
	t.Parallel()
	const jobs, kills = 3000, 20
	cluster := pgtest.New(t, pgtest.WithSettings(map[string]string{"synchronous_commit": "on"}))
	f, db := newFleet(t, cluster.DSN(""), "3000")
	dbtest.Execute(t, db, "ANALYZE jobs")
	for range 4 {
		f.MustStart(t)
	}
	for n := range kills {
		lockertest.Eventually(t, "jobs go on", func() bool { return number(db, done) >= n*jobs/(kills+1) })
		if n == kills/2 {
			if err := cluster.Restart(true); err != nil { // a crash
				t.Fatal(err)
			}
		}
		running := f.Running()
		if err := running[rand.IntN(len(running))].Kill(); err != nil {
			t.Fatal(err)
		}
		lockertest.Eventually(t, "the database responds", func() bool { return db.PingContext(t.Context()) == nil })
		f.MustStart(t)
	}
	lockertest.Eventually(t, "all jobs are done", func() bool { return number(db, done) == jobs })
	if err := f.Stop(); err != nil {
		t.Error(err)
	}
	wantOnce(t, db, jobs)
	t.Logf("%d jobs, each with one effect, in %d attempts; %d processes were killed, and the database once",
		jobs, dbtest.Number(t, db, "SELECT sum(attempt) FROM jobs"), kills)
}

// The error does not show a URL, which may contain a password.
func TestBadURL(t *testing.T) {
	for _, url := range []string{"postgres://alice:secret@host:port/x", "nonsense secret", "postgres://alice:secret@127.0.0.1:1/x"} {
		out, err := fleet.Test(t, "DATABASE_URL="+url).Run()
		if err == nil || strings.Contains(out, "secret") || strings.Contains(out, "alice") {
			t.Errorf("it ends with %v\n%s", err, out)
		}
	}
}
