package lockwatch

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/latchkey-go/latchkey/sqllock"
)

// withoutDatabase returns a watchdog that cannot ask a database, and what it reports.
func withoutDatabase(terminate func(Finding) bool) (w *watchdog, reported *[]Finding) {
	reported = new([]Finding)
	report := func(f Finding) { *reported = append(*reported, f) }
	return newWatchdog(nil, report, watchOptions{log: slog.New(slog.DiscardHandler), terminate: terminate}), reported
}

// A part of the work that fails for another reason is reported again. The same
// reason is not.
func TestWatchTellsAnotherReason(t *testing.T) {
	t.Parallel()
	w, reported := withoutDatabase(nil)
	one, two := errors.New("one"), errors.New("two")
	away, far := fmt.Errorf("%w: away", sqllock.ErrUnavailable), fmt.Errorf("%w: far", sqllock.ErrUnavailable)
	for i, step := range []struct {
		err      error
		reported int
	}{{nil, 0}, {one, 1}, {errors.New("one"), 1}, {two, 3}, {away, 5}, {far, 5}, {nil, 6}, {nil, 6}} {
		w.notePart(partLook, step.err)
		if len(*reported) != step.reported {
			t.Errorf("step %d: reported %d times, want %d", i+1, len(*reported), step.reported)
		}
	}
}
