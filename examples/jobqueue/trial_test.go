package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// TestExactlyOnce is the accounting: 10,000 jobs, 20 kills with SIGKILL, an outage of
// the database, each way. With -short there are fewer jobs.
func TestExactlyOnce(t *testing.T) {
	f, err := parseFlags([]string{"-jobs", "10000", "-kills", "20", "-outage", "2s", "-seed", "7"})
	if err != nil {
		t.Fatal(err)
	}
	if testing.Short() {
		f.jobs = 1000
	}
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			p, err := openPlace()
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := p.close(); err != nil {
					t.Error(err)
				}
			}()
			if p.cluster == nil {
				t.Log("DATABASE_URL is set: without an outage")
			}
			a, err := try(t.Context(), p, way, f, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			if err := a.report(t.Output()); err != nil {
				t.Error(err)
			}
			if a.kills != f.kills {
				t.Errorf("%d kills, want %d", a.kills, f.kills)
			}
		})
	}
}

// TestFrozen: a worker is stopped in the midst of a job (SIGSTOP), loses its lease, and goes
// on when another has done the job. Its completion is refused.
func TestFrozen(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f, err := parseFlags([]string{"-lease", "2s", "-workers", "2"})
			if err != nil {
				t.Fatal(err)
			}
			p := &place{url: pgtest.Database(t)}
			err = p.withSchema(t.Context(), func(db *sqlx.DB, schema string) error {
				tr := &trial{flags: f, way: way, place: p, db: db, schema: schema, account: account{outcomes: map[string]int{}}}
				defer func() {
					for _, p := range tr.fleet { // else a failed test would wait for it
						_ = p.command.Process.Signal(syscall.SIGCONT)
					}
					if err := tr.stop(); err != nil {
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

func frozen(t *testing.T, tr *trial) error {
	holds := func(condition string) func() bool {
		return func() bool {
			var ok bool
			if err := tr.db.Get(&ok, "SELECT "+condition); err != nil {
				t.Fatal(err)
			}
			return ok
		}
	}
	if _, err := tr.db.Exec("INSERT INTO jobs (id, kind) VALUES (-7, 'frozen')"); err != nil {
		return err
	}
	if err := tr.start(); err != nil {
		return err
	}
	lockertest.Eventually(t, "the first attempt has begun", holds("count(*) = 1 FROM attempts"))
	victim := tr.fleet[0]
	if err := victim.command.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := tr.start(); err != nil {
		return err
	}
	lockertest.Eventually(t, "another has done it", holds("count(*) = 1 FROM jobs WHERE status = 'done'"))
	if err := victim.command.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	if err := tr.stop(); err != nil { // waits for the attempt's end
		return err
	}
	if n := tr.account.outcomes["abandoned"] + tr.account.outcomes["superseded"]; n != 1 {
		t.Errorf("outcomes are %v, want one attempt that was not let", tr.account.outcomes)
	}
	if !holds("count(*) = 1 AND min(attempt) = 2 FROM effects")() {
		t.Error("want one effect, that of the second attempt")
	}
	return nil
}

// TestStartedInOutage: a worker that is started while the database is away waits for it, and
// stops when it is told to.
func TestStartedInOutage(t *testing.T) {
	f, err := parseFlags(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := startProcess(f, "skip", "postgres://127.0.0.1:1/nowhere", "public")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	dsn := pgtest.Database(t)
	t.Setenv("DATABASE_URL", dsn)
	f, err := parseFlags([]string{"-jobs", "200", "-kills", "2"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(t.Context(), f, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), "nothing lost, nothing done twice"); n != len(ways) {
		t.Errorf("%d verdicts, want one for each way:\n%s", n, out.String())
	}
	leavesNothing(t, dsn)
}

func TestBench(t *testing.T) {
	dsn := pgtest.Database(t)
	t.Setenv("DATABASE_URL", dsn)
	all := loads
	defer func() { loads = all }()
	for i := range loads {
		loads[i].jobs = 64
	}
	var out bytes.Buffer
	if err := run(t.Context(), flags{bench: true}, &out); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "jobs/s"); n != 2*len(loads) {
		t.Errorf("%d figures, want two for each of %d loads:\n%s", n, len(loads), out.String())
	}
	leavesNothing(t, dsn)
}

// leavesNothing checks that no schema of ours is left in the user's database.
func leavesNothing(t *testing.T, dsn string) {
	t.Helper()
	db, err := connect(dsn, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.Get(&n, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'latchkey%'"); err != nil || n != 0 {
		t.Errorf("it leaves %d schemas, %v", n, err)
	}
}

// TestInterrupted: told to stop in the midst of it, the program ends its workers and says why.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("told to stop")
	t.Setenv("DATABASE_URL", pgtest.Database(t))
	f, err := parseFlags([]string{"-jobs", "100000", "-kills", "0"})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.AfterFunc(time.Millisecond, func() { cancel(stopped) })
	defer begun.Stop()
	if err := run(ctx, f, t.Output()); err == nil {
		t.Error("it ended without an error")
	}
}

func TestVerdict(t *testing.T) {
	fine := account{Jobs: 20, Hopeless: 1, Done: 19, Dead: 1, Effects: 19, Changed: 19, Attempts: 25}
	tests := []struct {
		name  string
		spoil func(*account)
		want  string // in the error; "": none
	}{
		{"fine", func(*account) {}, ""},
		{"an effect twice", func(a *account) { a.Effects++ }, "1 effects happened twice"},
		{"an attempt twice", func(a *account) { a.Twice++ }, "1 attempts ran twice"},
		{"a job without an effect", func(a *account) { a.Effects--; a.Changed-- }, "lost"},
		{"a job not done", func(a *account) { a.Done-- }, "lost"},
		{"a job dead that should not be", func(a *account) { a.Done--; a.Dead++ }, "lost"},
		{"one twice and one not", func(a *account) { a.Changed-- }, "1 effects happened twice"},
	}
	for _, tt := range tests {
		a := fine
		tt.spoil(&a)
		switch err := a.verdict(); {
		case tt.want == "" && err != nil, tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, bad := range [][]string{{"-way", "third"}, {"-worker", "third"}, {"-jobs", "0"}, {"-kills", "-1"}, {"-workers", "0"}, {"-outage", "-1s"}, {"-nonsense"}} {
		if _, err := parseFlags(bad); err == nil {
			t.Errorf("%v is accepted", bad)
		}
	}
}

// TestBadURL: the error does not show what may hold a password.
func TestBadURL(t *testing.T) {
	for _, url := range []string{"postgres://alice:secret@host:port/x", "nonsense secret", "postgres://alice:secret@127.0.0.1:1/x"} {
		t.Setenv("DATABASE_URL", url)
		f, err := parseFlags(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), f, t.Output()); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "alice") {
			t.Errorf("the error is %v", err)
		}
	}
}
