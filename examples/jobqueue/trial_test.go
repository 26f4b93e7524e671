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

	"github.com/latchkey-go/latchkey/examples/jobqueue/internal/demo"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

// Each job is done once, in each way: 2,000 jobs, 20 kills with SIGKILL, and
// an outage of the database. If DATABASE_URL is set there is no outage.
func TestLongExactlyOnce(t *testing.T) {
	const kills = 20
	f, err := demo.ParseFlags([]string{"-jobs", "2000", "-kills", strconv.Itoa(kills), "-outage", "2s", "-seed", "7"})
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

// The demonstration and the measurement run, and leave nothing behind.
func TestRun(t *testing.T) {
	run(t, []string{"-jobs", "100", "-kills", "0", "-lease", "1m"}, "nothing lost, nothing done twice", 2) // one for each way
}

func TestLongBench(t *testing.T) {
	all := slices.Clone(demo.Loads)
	defer func() { demo.Loads = all }()
	for i := range demo.Loads {
		demo.Loads[i].Jobs = 64
	}
	run(t, []string{"-bench"}, "jobs/s", 2*len(demo.Loads))
}

// run runs the program on a database, and checks how often it prints a line.
func run(t *testing.T, args []string, line string, want int) {
	t.Helper()
	dsn := pgtest.Database(t)
	t.Setenv("DATABASE_URL", dsn)
	var out bytes.Buffer
	if err := demo.Run(t.Context(), args, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if n := strings.Count(out.String(), line); n != want {
		t.Errorf("%d times %q, want %d, in\n%s", n, line, want, out.String())
	}
	db := dbtest.Open(t, "pgx", dsn)
	if n := dbtest.Number(t, db, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'latchkey%'"); n != 0 {
		t.Errorf("it leaves %d schemas in the user's database", n)
	}
}

// An interrupted program ends its workers and says why.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("interrupted")
	t.Setenv("DATABASE_URL", pgtest.Database(t))
	time.AfterFunc(time.Millisecond, func() { cancel(stopped) }) // at any step
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
