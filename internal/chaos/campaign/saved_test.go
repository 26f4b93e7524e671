package campaign

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// leave writes the histories of a campaign to a directory.
func leave(t *testing.T, histories ...[]history.Event) (dir string) {
	t.Helper()
	dir = t.TempDir()
	file, err := os.Create(filepath.Join(dir, "process-1.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, events := range histories {
		for _, e := range events {
			if err := json.NewEncoder(file).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// ended is a campaign of one fault of row 4, after which a lock was acknowledged
// to have written. It is saved in a directory with its history.
func ended(t *testing.T, change func(r *Result)) Plan {
	t.Helper()
	f := fault(4, 1, 100, 1200)
	write := history.Write{Process: 2, Key: 1, Lock: 20, Number: 5, Begin: 1160 * ms, End: 1170 * ms, Result: history.OK}
	dir := leave(t, grant(1, 11, 10, 890, 900, 910, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK),
		[]history.Event{{Try: &history.Try{Process: 3, Key: 1, Begin: 1140 * ms, End: 1141 * ms, Result: history.Held}}}, // it wants the key that was lost
		[]history.Event{{Try: &history.Try{Process: 3, Key: 1, Begin: 1199 * ms, End: 1201 * ms, Result: history.Held}}}, []history.Event{f, {Write: &write}})
	r := newResult(fleetSettings(), []faults.Row{rowNumbered(fleet.Postgres, 4, "partition")})
	r.command = "go run . -seed 7"
	r.gathered, r.writes = true, []check.Stored{{Key: 1, N: 1, Lock: 20, Number: 5}}
	r.add(r.Rows[0].Row, faults.Outcome{Fault: *f.Fault, Lost: 1, Recovery: time.Second}, nil)
	change(r)
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	return Plan{Fleet: fleet.Settings{Dir: dir, Lease: time.Minute}}
}

// A saved campaign is checked again as it was checked at first.
func TestRecheck(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *Result)
		want   error
		status string
	}{
		{"as it was", func(*Result) {}, nil, "ok"},
		{"a write is missing", func(r *Result) { r.writes[0].Number = 6 }, check.ErrWriteMissing, "ok, but for the fence: VIOLATED in some row"},
		{"the database was not asked", func(r *Result) { r.gathered, r.writes = false, nil }, errCoverage, "ok"},
		{"a guarantee was violated", func(r *Result) { r.Rows[0].Err = faults.ErrViolated }, faults.ErrViolated, "VIOLATED"},
		{"an accident", func(r *Result) { r.Rows[0].Err = errors.New("no room") }, nil, "broken off"},
		{"interrupted", func(r *Result) { r.interrupted = true }, errInterrupted, "ok"},
		{"another lease, which passes sooner", func(r *Result) { r.settings.Lease = 100 * time.Millisecond }, check.ErrSlow, "VIOLATED"},
		{"the same on a busy machine", func(r *Result) { r.settings.Lease, r.busy = 100*time.Millisecond, time.Minute }, nil, "ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := Recheck(t.Context(), ended(t, tt.change))
			if tt.want != nil && !errors.Is(err, tt.want) || (err == nil) != (tt.status == "ok" && tt.want == nil) {
				t.Errorf("%v, want %v", err, tt.want)
			}
			if got := r.status(r.Rows[0]); got != tt.status || r.Faults != 1 || r.Rows[0].Lost != 1 || r.command != "go run . -seed 7" {
				t.Errorf("%q, want %q; %v", got, tt.status, r)
			}
		})
	}
}

// Of a campaign that was killed there are only histories.
func TestRecheckRemains(t *testing.T) {
	plan := Plan{Fleet: fleet.Settings{Lease: time.Second, Dir: leave(t,
		grant(1, 11, 10, 890, 900, 910, history.Lost), grant(2, 20, 1150, 1200, 0, 1210, history.OK), []history.Event{fault(4, 1, 100, 1200)})}}
	r, err := Recheck(t.Context(), plan)
	if err != nil || len(r.Rows) != 1 || r.status(r.Rows[0]) != "ok" || r.Report.Losses != 1 {
		t.Errorf("%v, %v", r, err)
	}
	plan.Fleet.Dir = leave(t, grant(1, 11, 10, 890, 900, 910, history.OK), grant(2, 20, 150, 200, 0, 210, history.OK))
	if _, err := Recheck(t.Context(), plan); !errors.Is(err, check.ErrOverlap) {
		t.Errorf("two locks at once: %v", err)
	}
	plan.Fleet.Dir = t.TempDir()
	if r, err := Recheck(t.Context(), plan); r != nil || err == nil {
		t.Errorf("nothing was checked, and it was %v", r)
	}
}

func TestStaleWrites(t *testing.T) {
	writes := []check.Stored{{Key: 1, N: 2, LSN: 5}, {Key: 1, N: 1, LSN: 7}, {Key: 2, N: 1, LSN: 1}, {Key: 1, N: 3, Timeline: 1}}
	if n := staleWrites(writes); n != 1 {
		t.Errorf("%d stale writes, want 1", n)
	}
}
