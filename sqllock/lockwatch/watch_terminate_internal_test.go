package lockwatch

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// withoutDatabase returns a watchdog that cannot ask a database, and what it reports.
func withoutDatabase(terminate func(Finding) bool) (w *watchdog, reported *[]Finding) {
	reported = new([]Finding)
	report := func(f Finding) { *reported = append(*reported, f) }
	return newWatchdog(nil, report, watchOptions{log: slog.New(slog.DiscardHandler), terminate: terminate}), reported
}

// The database's clock alone ends no session, since it may step. This process must
// have seen the same heartbeat, and no new statement, for the late age.
func TestTerminateNeedsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w, _ := withoutDatabase(func(Finding) bool { asked++; return false })
		at := time.Now()
		look := func(heartbeat, stateSince int) {
			beat := at.Add(time.Duration(heartbeat) * time.Second)
			h := Holder{Key: sqllock.ID(1), Process: Process{PID: 1, State: "idle", StateSince: at.Add(time.Duration(stateSince) * time.Second)},
				Registration: &Registration{Heartbeat: beat, Expires: beat.Add(10 * time.Second)}}
			s := &Snapshot{At: at.Add(time.Hour), Holders: []Holder{h}} // the clock has stepped: all looks late
			w.diagnosis.Look(s)
			w.terminate(t.Context(), s, time.Now())
		}
		for i, step := range []struct {
			after                 time.Duration
			heartbeat, stateSince int
			asked                 int
		}{
			{0, 1, 1, 0}, {4 * time.Second, 1, 1, 0}, {0, 2, 1, 0}, {4 * time.Second, 2, 1, 0}, {0, 2, 2, 0},
			{4999 * time.Millisecond, 2, 2, 0}, {time.Millisecond, 2, 2, 1}, {0, 2, 2, 2},
		} {
			time.Sleep(step.after)
			look(step.heartbeat, step.stateSince)
			if asked != step.asked {
				t.Errorf("look %d: asked %d times, want %d", i+1, asked, step.asked)
			}
		}
	})
}

// A look tries a session once, even if several of its locks are late. If the
// database is away, it does not try the others.
func TestTerminateAttempts(t *testing.T) {
	t.Parallel()
	asked := 0
	w, reported := withoutDatabase(func(Finding) bool { asked++; return true })
	w.inspector.busy <- struct{}{} // the driver is stuck: every question fails at once
	s := &Snapshot{At: time.Now()}
	for i := range 10 {
		s.Holders = append(s.Holders, Holder{Key: sqllock.ID(int64(i)), Process: Process{PID: i / 5, State: "idle", StateSince: s.At.Add(-time.Hour)},
			Registration: &Registration{Heartbeat: s.At.Add(-time.Hour), Expires: s.At.Add(-time.Hour)}})
	}
	w.diagnosis.Look(s)
	w.terminate(context.Background(), s, time.Now().Add(time.Hour))
	if asked != 1 || len(*reported) != 1 || !errors.Is((*reported)[0].Err, sqllock.ErrUnavailable) {
		t.Errorf("asked %d times, reported %+v", asked, *reported)
	}
}
