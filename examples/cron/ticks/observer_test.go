package ticks

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
	"github.com/latchkey-go/latchkey/sqllock/watermark"
)

// A log at its usual level reports what goes wrong, and not what others run.
func TestLogged(t *testing.T) {
	t.Parallel()
	run := &Run{Job: "report", Tick: time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)}
	for name, tt := range map[string]struct {
		tell func(o Observer)
		want string // "" for nothing
	}{
		"a run that went well": {func(o Observer) { o.Ended(Ended{Run: run}) }, ""},
		"outlived its tick":    {func(o Observer) { o.Ended(Ended{Run: run, Outlived: 2}) }, "level=WARN"},
		"lost its lock":        {func(o Observer) { o.Ended(Ended{Run: run, Err: sqllock.ErrLost}) }, "lock was lost"},
		"panicked":             {func(o Observer) { o.Ended(Ended{Run: run, Panicked: true}) }, "panicked=true"},
		"held":                 {func(o Observer) { o.Rejected(Rejected{"report", run.Tick, sqllock.ErrHeld}) }, ""},
		"passed":               {func(o Observer) { o.Rejected(Rejected{"report", run.Tick, watermark.ErrPassed}) }, ""},
		"database away":        {func(o Observer) { o.Rejected(Rejected{"report", run.Tick, sqllock.ErrUnavailable}) }, "level=ERROR"},
		"no table":             {func(o Observer) { o.Rejected(Rejected{"report", run.Tick, errors.New("watermark.Schema")}) }, "watermark.Schema"},
	} {
		var out bytes.Buffer
		tt.tell(Logged(slog.New(slog.NewTextHandler(&out, nil))))
		if got := out.String(); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
	var nothing Observer // and with no functions it is quiet
	nothing.begin(run)
	nothing.end(Ended{Run: run})
	if err := nothing.reject("report", run.Tick, sqllock.ErrHeld); err != sqllock.ErrHeld {
		t.Errorf("refuse: %v", err)
	}
}

// What Pass begins holds no lock: to end it does no harm.
func TestPassBegins(test *testing.T) {
	t := onDatabase(test)
	var told record
	ticks := t.instance(WithClock(newHandClock().Now), WithObserver(told.observer()))
	if err := ticks.Pass(t.Context(), "report", Every(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := ticks.Pass(t.Context(), "report", Every(time.Hour)); err != watermark.ErrPassed {
		t.Errorf("Pass again: %v, want ErrPassed", err)
	}
	if err := ticks.Pass(t.Context(), "never", parse(t, "0 0 30 2 *")); err != ErrNotDue {
		t.Errorf("Pass of a schedule without ticks: %v, want ErrNotDue", err)
	}
	if _, err := ticks.Begin(t.Context(), "never", parse(t, "0 0 30 2 *")); err != ErrNotDue {
		t.Errorf("Begin of a schedule without ticks: %v, want ErrNotDue", err)
	}
	if err := told.began[0].End(); err != nil {
		t.Errorf("End: %v", err)
	}
}
