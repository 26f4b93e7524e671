package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/examples/jobqueue/internal/demo"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Each job is done once, in each way: 10,000 jobs, 20 kills with SIGKILL, and
// an outage of the database. With -short there are fewer jobs. If DATABASE_URL
// is set there is no outage.
func TestExactlyOnce(t *testing.T) {
	const kills = 20
	jobs := "10000"
	if testing.Short() {
		jobs = "1000"
	}
	f, err := demo.ParseFlags([]string{"-jobs", jobs, "-kills", strconv.Itoa(kills), "-outage", "2s", "-seed", "7"})
	if err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{demo.Advisory, demo.Skip} {
		t.Run(way, func(t *testing.T) {
			p, err := demo.OpenPlace()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}()
			a, err := demo.Try(t.Context(), p, way, f, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Report(t.Output()); err != nil {
				t.Error(err)
			}
			if a.Kills != kills {
				t.Errorf("%d kills, want %d", a.Kills, kills)
			}
		})
	}
}

// A worker is stopped in the middle of a job (SIGSTOP), loses its lease, and
// goes on when another worker has done the job. Its completion is rejected.
func TestFrozen(t *testing.T) {
	for _, way := range []string{demo.Advisory, demo.Skip} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f, err := demo.ParseFlags([]string{"-lease", "2s", "-workers", "2"})
			if err != nil {
				t.Fatal(err)
			}
			p := &demo.Place{URL: pgtest.Database(t)}
			err = p.WithSchema(t.Context(), func(db *sqlx.DB, schema string) error {
				tr := demo.NewTrial(f, way, p, db, schema)
				defer func() {
					for _, p := range tr.Fleet { // otherwise a failed test would wait for it
						_ = p.Thaw()
					}
					if err := tr.Stop(); err != nil {
						t.Error(err)
					}
				}()
				return frozen(t, tr)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func frozen(t *testing.T, tr *demo.Trial) error {
	holds := func(condition string) func() bool {
		return func() bool {
			var ok bool
			if err := tr.DB.Get(&ok, "SELECT "+condition); err != nil {
				t.Fatal(err)
			}
			return ok
		}
	}
	if _, err := tr.DB.Exec("INSERT INTO jobs (id, kind) VALUES (-7, 'frozen')"); err != nil {
		return err
	}
	if err := tr.Start(); err != nil {
		return err
	}
	lockertest.Eventually(t, "the first attempt has begun", holds("count(*) = 1 FROM attempts"))
	victim := tr.Fleet[0]
	if err := victim.Freeze(); err != nil {
		return err
	}
	if err := tr.Start(); err != nil {
		return err
	}
	lockertest.Eventually(t, "another has done it", holds("count(*) = 1 FROM jobs WHERE status = 'done'"))
	if err := victim.Thaw(); err != nil {
		return err
	}
	if err := tr.Stop(); err != nil { // waits for the attempt's end
		return err
	}
	if n := tr.Account.Outcomes["abandoned"] + tr.Account.Outcomes["superseded"]; n != 1 {
		t.Errorf("outcomes are %v, want one attempt that was stopped", tr.Account.Outcomes)
	}
	if !holds("count(*) = 1 AND min(attempt) = 2 FROM effects")() {
		t.Error("want one effect, that of the second attempt")
	}
	return nil
}

// A worker that starts while the database is away waits for it, and stops when
// it is asked to.
func TestStartedInOutage(t *testing.T) {
	p, err := demo.StartProcess(demo.Worker{DatabaseURL: "postgres://127.0.0.1:1/nowhere", Way: demo.Skip, AtOnce: 8, Lease: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	dsn := pgtest.Database(t)
	t.Setenv("DATABASE_URL", dsn)
	var out bytes.Buffer
	if err := demo.Run(t.Context(), []string{"-jobs", "200", "-kills", "2"}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "nothing lost, nothing done twice"); n != 2 {
		t.Errorf("%d verdicts, want one for each way:\n%s", n, out.String())
	}
	leavesNothing(t, dsn)
}

func TestBench(t *testing.T) {
	dsn := pgtest.Database(t)
	t.Setenv("DATABASE_URL", dsn)
	all := slices.Clone(demo.Loads)
	defer func() { demo.Loads = all }()
	for i := range demo.Loads {
		demo.Loads[i].Jobs = 64
	}
	var out bytes.Buffer
	if err := demo.Run(t.Context(), []string{"-bench"}, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "jobs/s"); n != 2*len(demo.Loads) {
		t.Errorf("%d figures, want two for each of %d loads:\n%s", n, len(demo.Loads), out.String())
	}
	leavesNothing(t, dsn)
}

// leavesNothing checks that no schema of ours is left in the user's database.
func leavesNothing(t *testing.T, dsn string) {
	t.Helper()
	db, err := demo.Connect(dsn, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.Get(&n, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'latchkey%'"); err != nil || n != 0 {
		t.Errorf("it leaves %d schemas, %v", n, err)
	}
}

// An interrupted program ends its workers and says why.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("interrupted")
	t.Setenv("DATABASE_URL", pgtest.Database(t))
	begun := time.AfterFunc(time.Millisecond, func() { cancel(stopped) })
	defer begun.Stop()
	if err := demo.Run(ctx, []string{"-jobs", "100000", "-kills", "0"}, t.Output()); err == nil {
		t.Error("it ended without an error")
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-way", "third"}, {"-jobs", "0"}, {"-kills", "-1"}, {"-workers", "0"}, {"-outage", "-1s"}, {"-nonsense"}} {
		if _, err := demo.ParseFlags(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// The error does not show a URL, which may contain a password.
func TestBadURL(t *testing.T) {
	for _, url := range []string{"postgres://alice:secret@host:port/x", "nonsense secret", "postgres://alice:secret@127.0.0.1:1/x"} {
		t.Setenv("DATABASE_URL", url)
		if err := demo.Run(t.Context(), nil, t.Output()); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "alice") {
			t.Errorf("the error is %v", err)
		}
	}
}
