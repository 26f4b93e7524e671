package worker_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestMain(m *testing.M) {
	bound.Lengthen() // of the workers, too: on a busy machine they keep their Sessions
	worker.Main()
	os.Exit(leaktest.Check(pgtest.Main(m)))
}

// start starts a process on a database of its own.
func start(t *testing.T, driver string) *worker.Process {
	t.Helper()
	dsn := pgtest.Database(t)
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	p, err := worker.Start(worker.Config{
		Process: 7, Driver: driver, DSN: dsn, Direct: dsn, Lease: time.Minute,
		History: filepath.Join(t.TempDir(), "history.jsonl"), Callers: 4, Keys: 3, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// until polls for a status that satisfies.
func until(t *testing.T, p *worker.Process, what string, satisfies func(worker.Status) bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !satisfies(p.Status()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited without success for %s: %+v", what, p.Status())
		}
	}
}

func read(t *testing.T, p *worker.Process) []history.Event {
	t.Helper()
	file, err := os.Open(p.Config.History)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	events, err := history.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// A process that is killed leaves a history that can be read, with all that it
// had told about, and locks that have begun and not ended.
func TestLongKilled(t *testing.T) {
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			p := start(t, driver)
			until(t, p, "grants, refusals, writes and a lock that is held", func(s worker.Status) bool {
				return s.Granted > 10 && s.Held > 0 && s.Written > 0 && s.Holding > 0
			})
			told := p.Status()
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			var granted, refused, written int64
			open := map[int64]bool{}
			for _, e := range read(t, p) {
				switch {
				case e.Try != nil && e.Try.Result == history.OK:
					granted++
				case e.Try != nil && e.Try.Result == history.Held:
					refused++
				case e.Write != nil && e.Write.Result == history.OK:
					written++
				case e.Hold != nil && e.Hold.Ended == 0:
					open[e.Hold.Lock] = true
				case e.Hold != nil:
					delete(open, e.Hold.Lock)
				}
			}
			// A call is counted a moment before it is noted, by each of the callers.
			if granted < told.Granted-4 || refused < told.Held-4 || written < told.Written-4 {
				t.Errorf("the history has %d grants, %d refusals, %d writes; the process told of %+v", granted, refused, written, told)
			}
			if len(open) > 4 {
				t.Errorf("%d locks of 4 callers were held", len(open))
			}
			t.Logf("%d grants, %d refusals, %d writes, %d locks held at the end", granted, refused, written, len(open))
		})
	}
}

// A process that is drained holds nothing and leaves nothing.
func TestLongDrained(t *testing.T) {
	ends := map[string]func(*worker.Process, context.Context) (*worker.Report, error){
		"command": (*worker.Process).Drain,
		"SIGTERM": (*worker.Process).Terminate,
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, "pgx")
			until(t, p, "grants", func(s worker.Status) bool { return s.Granted > 10 })
			report, err := end(p, t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if report.Goroutines != 0 {
				t.Errorf("%d goroutines are left:\n%s", report.Goroutines, report.Stacks)
			}
			ended := map[int64]bool{}
			for _, e := range read(t, p) {
				if e.Hold != nil {
					ended[e.Hold.Lock] = e.Hold.Ended != 0
				}
			}
			for lock, ok := range ended {
				if !ok {
					t.Errorf("lock %d has no end", lock)
				}
			}
		})
	}
}

// A process that is frozen says nothing, and goes on when it is thawed.
func TestLongFrozen(t *testing.T) {
	p := start(t, "pgx")
	until(t, p, "grants", func(s worker.Status) bool { return s.Granted > 10 })
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	// What it wrote before may still be on its way.
	frozen := p.Status()
	for quiet := time.Now(); time.Since(quiet) < 200*time.Millisecond; time.Sleep(time.Millisecond) {
		if now := p.Status(); now.At != frozen.At {
			frozen, quiet = now, time.Now()
		}
	}
	if err := p.Thaw(); err != nil {
		t.Fatal(err)
	}
	until(t, p, "more grants", func(s worker.Status) bool { return s.Granted > frozen.Granted })
}
