package main

import (
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/internal/subprocess/programtest"
)

func TestMain(m *testing.M) {
	bound.Lengthen()
	programtest.Main(main)
	dbtest.Main(m)
}

// leavesNothing checks what the demonstration leaves in the user's database.
func leavesNothing(t *testing.T, db *sql.DB) {
	t.Helper()
	for what, query := range map[string]string{
		"tables": "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'cron_example%'",
		"marks":  "SELECT count(*) FROM latchkey_watermarks",
	} {
		if n := dbtest.Number(t, db, query); n != 0 {
			t.Errorf("it leaves %d %s", n, what)
		}
	}
	// A server process may outlive its client for a moment.
	lockertest.Eventually(t, "no lock is left", func() bool { return dbtest.AdvisoryLocks(t, db) == 0 })
}

// The demonstration runs, kills two instances, and its account is right. It leaves
// nothing behind.
func TestLongDemonstration(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	c := programtest.Command(t, "-for", "6s")
	c.Env = append(c.Env, "DATABASE_URL="+dsn)
	out := programtest.Output(t, c)
	for _, want := range []string{
		"OK:", "Instances killed: 2.", "Ticks run twice: 0.", "though no run was under way: ", "latchkey_watermarks stays",
		"(killed)", "passed: ", "held: ", "(outlived ",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q, but\n%s", want, out)
		}
	}
	leavesNothing(t, dbtest.Open(t, "pgx", dsn))
}

// Instances run ticks of each kind of job until the demonstration is
// interrupted. It leaves nothing behind.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	c := programtest.Command(t, "-for", "1h")
	c.Env = append(c.Env, "DATABASE_URL="+dsn)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, "pgx", dsn)
	const jobs = 5
	lockertest.Eventually(t, "a tick of each job has been run", func() bool {
		var n int // an error says that the table is not there yet
		return db.QueryRow("SELECT count(*) FROM latchkey_watermarks").Scan(&n) == nil && n == jobs
	})
	_ = c.Process.Signal(os.Interrupt)
	if err := c.Wait(); err == nil {
		t.Error("it ends as if all was well")
	}
	leavesNothing(t, db)
}

// A DATABASE_URL that leads nowhere is an error that does not show it.
func TestWithoutDatabase(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://clerk:sesame@127.0.0.1:1/nowhere": "database is unavailable",
		"postgres://clerk:sesame@%zz":                 "DATABASE_URL is not understood",
	} {
		c := programtest.Command(t)
		c.Env = append(c.Env, "DATABASE_URL="+url)
		out, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %s", err, out)
		}
		for _, secret := range []string{"clerk", "sesame", "127.0.0.1", "nowhere"} {
			if strings.Contains(string(out), secret) {
				t.Errorf("it shows a part of the URL: %s", out)
			}
		}
	}
}
