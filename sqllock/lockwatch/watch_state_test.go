package lockwatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect/postgres"
	"github.com/latchkey-go/latchkey/sqllock"
)

// newWatchdog is one that has no database, and what it tells.
func newWatchdog(terminate func(Finding) bool) (w *watchdog, told *[]Finding) {
	told = new([]Finding)
	w = &watchdog{report: func(f Finding) { *told = append(*told, f) },
		failures: make(map[string]Finding), terminated: make(map[processID]bool), unanswered: make(map[processID]Finding), busy: make(chan struct{}, 1)}
	w.options.log, w.options.terminate = slog.New(slog.DiscardHandler), terminate
	return w, told
}

// Nobody is condemned by the database's clock alone, which may step: only when this process has seen the same heartbeat, and
// the same end of the last statement, for the late age.
func TestTerminateNeedsSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		w, _ := newWatchdog(func(Finding) bool { asked++; return false })
		at := time.Now()
		look := func(heartbeat, stateSince int) {
			beat := at.Add(time.Duration(heartbeat) * time.Second)
			h := Holder{Key: sqllock.ID(1), Process: Process{PID: 1, State: "idle", StateSince: at.Add(time.Duration(stateSince) * time.Second)},
				Registration: &Registration{Heartbeat: beat, Expires: beat.Add(10 * time.Second)}}
			s := &Snapshot{At: at.Add(time.Hour), Holders: []Holder{h}} // the clock has stepped: all looks late
			w.diagnosis.look(s)
			w.terminate(t.Context(), postgres.Registry{}, s, now())
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

// A session that was gone at the look after its end's answer was lost counts as ended; one that is there does not.
func TestTerminatedThoughTheAnswerWasLost(t *testing.T) {
	t.Parallel()
	for _, gone := range []bool{true, false} {
		w, told := newWatchdog(nil)
		h := Holder{Key: sqllock.ID(1), Process: Process{PID: 1}}
		w.unanswered[h.processID()] = Finding{Kind: LateHeartbeat, Holder: &h, Terminated: true}
		s := &Snapshot{}
		if !gone {
			s.Holders = []Holder{h}
		}
		w.confirmTerminated(s)
		w.confirmTerminated(&Snapshot{})
		if (len(*told) == 1) != gone {
			t.Errorf("gone %v: told %+v", gone, *told)
		}
	}
}

// One attempt is made for a process at a look, whatever many locks of it are late; when the database is away, none for the others.
func TestTerminateAttempts(t *testing.T) {
	t.Parallel()
	asked := 0
	w, told := newWatchdog(func(Finding) bool { asked++; return true })
	w.busy <- struct{}{} // the driver is stuck: every question fails at once
	s := &Snapshot{At: time.Now()}
	for i := range 10 {
		s.Holders = append(s.Holders, Holder{Key: sqllock.ID(int64(i)), Process: Process{PID: i / 5, State: "idle", StateSince: s.At.Add(-time.Hour)},
			Registration: &Registration{Heartbeat: s.At.Add(-time.Hour), Expires: s.At.Add(-time.Hour)}})
	}
	w.diagnosis.look(s)
	w.terminate(context.Background(), postgres.Registry{}, s, now()+time.Hour)
	if asked != 1 || len(*told) != 1 || !errors.Is((*told)[0].Err, sqllock.ErrUnavailable) || len(w.unanswered) != 0 {
		t.Errorf("asked %d times, told %+v", asked, *told)
	}
}

// Another reason for which a part fails is told, the same one not again.
func TestWatchTellsAnotherReason(t *testing.T) {
	t.Parallel()
	w, told := newWatchdog(nil)
	one, two := errors.New("one"), errors.New("two")
	away, far := fmt.Errorf("%w: away", sqllock.ErrUnavailable), fmt.Errorf("%w: far", sqllock.ErrUnavailable)
	for i, step := range []struct {
		err  error
		told int
	}{{nil, 0}, {one, 1}, {errors.New("one"), 1}, {two, 3}, {away, 5}, {far, 5}, {nil, 6}, {nil, 6}} {
		w.notePart(partLook, step.err)
		if len(*told) != step.told {
			t.Errorf("step %d: told %d times, want %d", i+1, len(*told), step.told)
		}
	}
}
