package campaign

import (
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// No freeze is begun after the last, or after one that went wrong; each that was
// made is in the history, and the first error counts.
func TestFreezer(t *testing.T) {
	dir := t.TempDir()
	log, err := newFaultLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	z := &freezer{plan: Plan{Freezes: 4, Progress: io.Discard}, log: log, result: newResult(fleetSettings(), []faults.Row{frozenRow})}
	outcome := faults.Outcome{Fault: history.Fault{Row: 2, Begin: 1, End: 2}}
	first := errors.New("the first")
	steps := []struct {
		err, want error
		another   bool // before it
	}{
		{nil, nil, true},
		{first, first, true},
		{errors.New("a consequence"), first, false},
		{nil, first, false},
	}
	for i, step := range steps {
		if got := z.another(); got != step.another {
			t.Errorf("before freeze %d: another is %v", i, got)
		}
		if err := z.note(outcome, step.err); !errors.Is(err, step.want) || (err == nil) != (step.want == nil) {
			t.Errorf("freeze %d: %v, want %v", i, err, step.want)
		}
	}
	if z.result.Faults != 2 || !errors.Is(z.result.Rows[0].Err, first) {
		t.Errorf("%d freezes without error, and %v", z.result.Faults, z.result.Rows[0].Err)
	}
	if err := log.close(); err != nil {
		t.Fatal(err)
	}
	if events, err := readFile(filepath.Join(dir, "faults.jsonl")); err != nil || len(events) != len(steps) {
		t.Errorf("%d faults in the history, %v", len(events), err)
	}
	enough := &freezer{plan: Plan{Freezes: 1}}
	if !enough.another() || enough.another() {
		t.Error("one freeze was wanted")
	}
}
