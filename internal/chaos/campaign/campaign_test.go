package campaign

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/older"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/internal/leaktest"
)

func TestMain(m *testing.M) {
	worker.Main()
	os.Exit(leaktest.Check(m.Run()))
}

// busy is for a machine whose load nobody controls. No test here fails because
// of the machine's speed: times are in the log. A campaign by the command
// judges them.
const busy = 30 * time.Second

// plan is a short run on this store.
func plan(t *testing.T, store fleet.Store, rows ...int) Plan {
	t.Helper()
	set := fleet.Settings{
		Store: store, Processes: 4, Callers: 4, Keys: 8, Mixed: 4,
		Lease: 3 * time.Second, Dir: t.TempDir(), Seed: uint64(time.Now().UnixNano()),
	}
	return Plan{Rows: rows, Faults: 1, Fleet: set, Busy: busy, Progress: t.Output()}
}

// safe fails the test if two holders had one lock, a lock was left behind, or
// a stale write is in the database. All else that the campaign has judged is in
// the log.
func safe(t *testing.T, result *Result, err error) {
	t.Helper()
	if result == nil || result.Report == nil {
		t.Fatalf("the history was not checked: %v", err)
	}
	t.Logf("\n%v", result)
	if unsafe := check.Unsafe(err); unsafe != nil {
		t.Errorf("%v: %v", unsafe, err)
	} else if err != nil {
		t.Logf("no failure here, since a slow machine may be the cause: %v", err)
	}
}

// A minute's campaign for each store: the faults that take a moment, and some
// that take a lease, next to all kinds of callers.
func TestLongCampaign(t *testing.T) {
	for _, store := range fleet.Stores() {
		t.Run(string(store), func(t *testing.T) {
			rows := []int{1, 2, 5, 36}
			for _, row := range faults.Rows(store) {
				if row.Quick {
					rows = append(rows, row.Number)
				}
			}
			result, err := Run(t.Context(), plan(t, store, rows...))
			safe(t, result, err)
		})
	}
}

// A short campaign of two versions: processes of the last release, and of this
// commit, which take over from each other.
func TestLongTwoVersions(t *testing.T) {
	p := plan(t, fleet.Postgres, 1, 30)
	last := older.Last(t.Context())
	if err := exec.Command("git", "cat-file", "-e", last).Run(); err != nil {
		t.Skipf("%s is not in the history, as in a shallow clone: %v", last, err)
	}
	program, err := older.Build(t.Context(), last, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p.Fleet.Old = program
	result, err := Run(t.Context(), p)
	safe(t, result, err)
	if result.Report.Versions[last] == nil || len(result.Report.Versions) != 2 {
		t.Errorf("the versions are %v, want %s and this one", result.Report.Versions, last)
	}
}

// What an interrupted campaign has seen is checked.
func TestLongInterrupted(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	p := plan(t, fleet.Postgres, 13)
	p.Faults, p.Progress = 1000, writerFunc(interrupt)
	result, err := Run(ctx, p)
	safe(t, result, err)
	if !errors.Is(err, context.Canceled) || !strings.Contains(result.String(), "was interrupted") {
		t.Errorf("it ended with %v:\n%v", err, result)
	}
}

// A writerFunc is called at each line.
type writerFunc func()

func (f writerFunc) Write(line []byte) (int, error) {
	f()
	return len(line), nil
}

func TestUnknownRow(t *testing.T) {
	if _, err := Run(t.Context(), Plan{Rows: []int{99}, Fleet: fleet.Settings{Store: fleet.Postgres}}); err == nil {
		t.Error("there is no row 99, and no error")
	}
}

// A seed determines the order of the faults.
func TestOrder(t *testing.T) {
	numbers := func(seed uint64) (all []int) {
		for _, row := range order(rand.New(rand.NewPCG(seed, 2)), faults.Rows(fleet.Postgres), 3) {
			all = append(all, row.Number)
		}
		return all
	}
	if !slices.Equal(numbers(1), numbers(1)) || slices.Equal(numbers(1), numbers(2)) {
		t.Errorf("seed 1: %v and %v, seed 2: %v", numbers(1), numbers(1), numbers(2))
	}
}

// recorded is a campaign in which all happened that must.
func recorded(t *testing.T) *Result {
	t.Helper()
	r := &Result{
		Settings: fleet.Settings{Store: fleet.SQLite, Lease: time.Second, Dir: t.TempDir()}, Gathered: true,
		Rows:     []int{2},
		Outcomes: []faults.Outcome{{Fault: history.Fault{Row: 2, Process: 1, Begin: 100 * ms, End: 2000 * ms}, Lost: 1}},
		Stored:   []check.Stored{{Key: 1, N: 1, LSN: 1, Lock: 11, Number: 1}},
	}
	lines := `{"try":{"process":1,"key":1,"begin":1,"end":2,"result":"ok","lock":11}}
{"try":{"process":2,"key":1,"begin":110000000,"end":111000000,"result":"held"}}
{"write":{"process":1,"key":1,"lock":11,"number":1,"begin":5,"end":6,"result":"ok"}}
{"hold":{"process":1,"key":1,"lock":11,"from":3,"valid":99000000,"told":2001000000,"unlockBegin":2002000000,"unlock":"lost","ended":2003000000}}
`
	if err := os.WriteFile(filepath.Join(r.Settings.Dir, "process-1.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

// A campaign in which too little happened is no success. What was violated is
// told, and of which row.
func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*Result)
		want   error
		row    string // what the table says of the row
	}{
		{"all is well", func(*Result) {}, nil, "1901 / 1901 / 1901 ms"},
		{"a row was not made", func(r *Result) { r.Rows = append(r.Rows, 36) }, errCoverage, "not run"},
		{"the fault could not be made", func(r *Result) { r.Outcomes[0].Unmade = "; not made: why" }, errCoverage, "why"},
		{"a campaign without writes", func(r *Result) { r.Stored, r.Gathered = nil, false }, errCoverage, "ok"},
		{"callers of limits did nothing", func(r *Result) { r.Settings.Mixed = 1 }, errCoverage, "ok"},
		{"one version in a campaign of two", func(r *Result) { r.Settings.Old = "program" }, errCoverage, "ok"},
		{"fewer faults than wanted", func(r *Result) { r.Least.Faults = 2 }, errCoverage, "ok"},
		{"fewer operations than wanted", func(r *Result) { r.Least.Operations = 1000 }, errCoverage, "ok"},
		{"a write is missing", func(r *Result) { r.Stored = nil }, check.ErrWriteMissing, "ok"},
		{"told after another got the key", func(r *Result) {
			line := `{"hold":{"process":3,"key":1,"lock":31,"from":150000000,"valid":160000000,"unlockBegin":170000000,"unlock":"ok","ended":180000000}}`
			_ = os.WriteFile(filepath.Join(r.Settings.Dir, "process-3.jsonl"), []byte(line+"\n"), 0o600)
			r.Outcomes[0].Fault.Process = 9
			r.Interrupted = true
		}, check.ErrToldLate, "VIOLATED"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := recorded(t)
			tt.change(r)
			err := r.judge()
			if !errors.Is(err, tt.want) || tt.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if !strings.Contains(r.String(), tt.row) {
				t.Errorf("%q is not in\n%v", tt.row, r)
			}
		})
	}
}

// A campaign of two versions in which one of them did too little is no success.
func TestBothServed(t *testing.T) {
	kinds := []history.Kind{history.Plain, history.Set}
	share := func(sets, after, writes int) *check.Share {
		return &check.Share{Grants: map[history.Kind]int{history.Plain: 100, history.Set: sets}, After: after, Writes: map[history.Result]int{history.OK: writes}}
	}
	both := func(share *check.Share) map[string]*check.Share {
		return map[string]*check.Share{"new": share, "old": share}
	}
	other := func(other *check.Share) map[string]*check.Share {
		return map[string]*check.Share{"new": share(100, 100, 9), "old": other}
	}
	for _, tt := range []struct {
		name     string
		versions map[string]*check.Share
		want     error
	}{
		{"both alike", both(share(100, 100, 9)), nil},
		{"one is enough for another campaign", map[string]*check.Share{"new": share(100, 100, 9)}, errCoverage},
		{"no set for one", other(share(0, 100, 9)), errCoverage},
		{"few for one", other(&check.Share{Grants: map[history.Kind]int{history.Plain: 20, history.Set: 20}, After: 40, Writes: map[history.Result]int{history.OK: 9}}), errCoverage},
		{"no key goes from one to the other", both(share(100, 9, 9)), errCoverage},
		{"one does not write", other(share(100, 100, 0)), errCoverage},
	} {
		r := &Result{Settings: fleet.Settings{Old: "program"}, Report: &check.Report{Versions: tt.versions}}
		if err := r.bothServed(kinds); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if r.Settings.Old = ""; r.bothServed(kinds) != nil {
			t.Errorf("%s: a campaign of one version fails", tt.name)
		}
	}
}
