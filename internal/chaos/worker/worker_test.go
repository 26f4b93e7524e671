package worker_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/leaktest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
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
	dbtest.Create(t, dbtest.Open(t, "pgx", dsn), append(sqllock.FenceSchema(sqllock.PostgreSQL), worker.Schema))
	p, err := worker.Start(worker.Config{
		Process: 7, Driver: driver, DSN: dsn, Direct: dsn, Lease: 10 * time.Second, // no hold is longer than two leases
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
			lockertest.Eventually(t, "grants, refusals, writes and a lock that is held", func() bool {
				s := p.Status()
				return s.Granted > 10 && s.Held > 0 && s.Written > 0 && s.Holding > 0
			})
			told := p.Status()
			if err := p.Kill(); err != nil {
				t.Fatal(err)
			}
			count := map[string]int64{}
			for _, e := range read(t, p) {
				switch {
				case e.Try != nil:
					count["try "+string(e.Try.Result)]++
				case e.Write != nil:
					count["write "+string(e.Write.Result)]++
				}
			}
			// A call is counted a moment before it is noted, by each of the callers.
			if count["try ok"] < told.Granted-4 || count["try held"] < told.Held-4 || count["write ok"] < told.Written-4 {
				t.Errorf("the history has %v; the process told of %+v", count, told)
			}
		})
	}
}

// A process that is drained holds nothing and leaves nothing. What it has noted
// can be told apart.
func TestLongDrained(t *testing.T) {
	p := start(t, "pgx")
	lockertest.Eventually(t, "grants and writes", func() bool { s := p.Status(); return s.Granted > 30 && s.Written > 0 })
	report, err := p.Drain(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Goroutines != 0 {
		t.Errorf("%d goroutines are left:\n%s", report.Goroutines, report.Stacks)
	}
	ended, calls, writes := map[int64]bool{}, map[int64]history.Moment{}, map[int64]bool{}
	events := read(t, p)
	if first := events[0].Start; first == nil || first.Process != 7 || first.Version == "" || len(first.Keys) < 3 {
		t.Errorf("the first line is not that of a beginning: %+v", first)
	}
	for _, e := range events {
		switch {
		case e.Hold != nil:
			ended[e.Hold.Lock] = e.Hold.Ended != 0
		case e.Try != nil:
			if begin, ok := calls[e.Try.Call]; e.Try.Call == 0 || ok && begin != e.Try.Begin {
				t.Errorf("two calls have one number: %+v", *e.Try)
			}
			calls[e.Try.Call] = e.Try.Begin
		case e.Write != nil:
			if writes[e.Write.Number] || e.Write.Number == 0 {
				t.Errorf("two writes have one number: %+v", *e.Write)
			}
			writes[e.Write.Number] = true
		}
	}
	for lock, ok := range ended {
		if !ok {
			t.Errorf("lock %d has no end", lock)
		}
	}
}
