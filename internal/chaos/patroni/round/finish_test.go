//go:build linux

package round

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/bound"
	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/patroni/cluster"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

func TestMain(m *testing.M) {
	worker.Main()
	bound.Lengthen()
	os.Exit(m.Run())
}

// A round may have been blind for a while. What the databases say is checked all
// the same.
func TestCheck(t *testing.T) {
	refused := history.Write{Process: 1, Key: 1, Lock: 11, Number: 5, Begin: ms(1500), End: ms(1510), Result: history.Fenced}
	for _, tt := range []struct {
		name   string
		blind  int // milliseconds
		stored []check.Stored
		stuck  bool
		want   error
	}{
		{"all is well", 50, nil, false, nil},
		{"blind for too long", 3100, nil, true, nil},
		{"a refused write is stored", 50, []check.Stored{{Key: 1, N: 1, Timeline: 1, LSN: 1, Lock: 11, Number: 5}}, false, check.ErrWriteStored},
		{"the same, and blind for too long", 3100, []check.Stored{{Key: 1, N: 1, Timeline: 1, LSN: 1, Lock: 11, Number: 5}}, true, check.ErrWriteStored},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &run{Orders: Orders{Dir: t.TempDir(), Lease: time.Second}, result: &Result{Outcomes: []Outcome{{Row: keeps, Begin: ms(1000), End: ms(1000), Settled: ms(9000)}}}}
			r.seen = []cluster.Writable{{Node: "a", Before: ms(10000 - tt.blind), From: ms(10000), To: ms(11000)}}
			r.result.writes = tt.stored
			writeHistory(t, filepath.Join(r.Dir, "process-1.jsonl"),
				history.Event{Try: &history.Try{Process: 1, Key: 1, Call: 11, Lock: 11, Begin: ms(1400), End: ms(1410), Result: history.OK}},
				history.Event{Hold: &history.Hold{Process: 1, Key: 1, Lock: 11, From: ms(1410), Valid: ms(1600), UnlockBegin: ms(1600), Ended: ms(1610), Unlock: history.OK}},
				history.Event{Write: &refused})
			if err := r.check(); err != nil {
				t.Fatal(err)
			}
			if violated := strings.Join(r.result.Violations, "\n"); tt.want == nil && violated != "" || tt.want != nil && !strings.Contains(violated, tt.want.Error()) {
				t.Errorf("violations %q, want %v", violated, tt.want)
			}
			if r.result.Stuck() != tt.stuck || r.result.Operations == 0 {
				t.Errorf("stuck: %t, want %t; %d operations", r.result.Stuck(), tt.stuck, r.result.Operations)
			}
		})
	}
}

func writeHistory(t *testing.T, name string, events ...history.Event) {
	t.Helper()
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewEncoder(file)
	for _, e := range events {
		err = errors.Join(err, lines.Encode(e))
	}
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// A process that ends by itself is a violation.
func TestLongAlive(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a server that says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	dsn := "postgres://" + silent.Addr().String() + "/none?sslmode=disable"
	w, err := worker.Start(worker.Config{
		Process: 1, Driver: "pgx", DSN: dsn, Direct: dsn, History: filepath.Join(t.TempDir(), "process-1.jsonl"),
		Lease: 10 * time.Second, Callers: 1, Keys: 1, Pause: Pause, Look: Look,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &run{workers: []*worker.Process{w}, result: &Result{}}
	if r.alive(); len(r.result.Violations) != 0 {
		t.Errorf("a process that runs: %q", r.result.Violations)
	}
	if err := r.kill(); err != nil {
		t.Fatal(err)
	}
	if r.alive(); len(r.result.Violations) != 1 {
		t.Errorf("a process that has ended: %q", r.result.Violations)
	}
}
