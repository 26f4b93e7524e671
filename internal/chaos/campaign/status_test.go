package campaign

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// What is found wrong is told of the row whose fault came last before.
func TestVerdict(t *testing.T) {
	const first, second = 9, 10
	inFirst, inSecond := 150*ms, 250*ms
	accident := errors.New("there is no pgbouncer")
	tests := []struct {
		name  string
		found func(r *Result)
		want  [2]string
	}{
		{"nothing", func(*Result) {}, [2]string{"ok", "ok"}},
		{"not checked", func(r *Result) { r.Report = nil }, [2]string{"not checked", "not checked"}},
		{"not run", func(r *Result) { r.Rows[1].Times = 0 }, [2]string{"ok", "not run"}},
		{"an accident", func(r *Result) { r.Rows[1].Err = accident }, [2]string{"ok", "broken off"}},
		{"an accident, and no check", func(r *Result) { r.Rows[1].Err, r.Report = accident, nil }, [2]string{"not checked", "broken off"}},
		{"a violated guarantee", func(r *Result) { r.Rows[1].Err = fmt.Errorf("row 10: %w", faults.ErrViolated) }, [2]string{"ok", "VIOLATED"}},
		{"an overlap", func(r *Result) { r.Report.Overlaps = []check.Overlap{{From: inFirst}} }, [2]string{"VIOLATED", "ok"}},
		{"told late", func(r *Result) { r.Report.Late = []check.Late{{At: inSecond}} }, [2]string{"ok", "VIOLATED"}},
		{"valid again", func(r *Result) { r.Report.Resurrected = []check.Resurrection{{At: inFirst}} }, [2]string{"VIOLATED", "ok"}},
		{"a leak", func(r *Result) { r.Report.Leaks = []check.Leak{{At: inFirst}} }, [2]string{"VIOLATED", "ok"}},
		{"a long call", func(r *Result) { r.Report.Long = []check.Long{{At: inSecond}} }, [2]string{"ok", "VIOLATED"}},
		{"an illegal answer", func(r *Result) { r.Linearization.Illegal = []check.Place{{From: 1, To: inSecond}} }, [2]string{"ok", "VIOLATED"}},
		{"the fence", func(r *Result) { r.fence = check.ErrTokenFell }, [2]string{"ok, but for the fence: VIOLATED in some row", "ok, but for the fence: VIOLATED in some row"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newResult(fleetSettings(), []faults.Row{{Number: first}, {Number: second}})
			for i, row := range r.Rows {
				begin := history.Moment(100*(i+1)) * ms
				r.add(row.Row, faults.Outcome{Fault: history.Fault{Row: row.Row.Number, Begin: begin, End: begin}}, nil)
			}
			r.Report = new(check.Report)
			tt.found(r)
			if got := [2]string{r.status(r.Rows[0]), r.status(r.Rows[1])}; got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// To lose nothing is no success where something was to be lost.
func TestNothingLost(t *testing.T) {
	for _, tt := range []struct {
		row  int
		rep  check.Report
		want string
	}{
		{1, check.Report{}, "nothing lost"},
		{1, check.Report{Recoveries: []*check.Recovery{{Row: 1, Survived: 2, Bound: 1}}}, "nothing lost"},
		{1, check.Report{Recoveries: []*check.Recovery{{Row: 1, Keys: 1, Bound: 1}}}, "ok"},
		{4, check.Report{Recoveries: []*check.Recovery{{Row: 4, Keys: 1, Bound: 1}}}, "no holder was told"},
		{4, check.Report{Notifications: []*check.Notification{{Row: 4, Returned: 3}}}, "no holder was told"},
		{4, check.Report{Notifications: []*check.Notification{{Row: 4, Locks: 1}}}, "ok"},
		{9, check.Report{}, "ok"},
	} {
		r := newResult(fleetSettings(), []faults.Row{{Number: tt.row}})
		r.Rows[0].Times, r.Report = 1, &tt.rep
		if got := r.status(r.Rows[0]); got != tt.want {
			t.Errorf("row %d, %+v: %q, want %q", tt.row, tt.rep, got, tt.want)
		}
	}
}

// A campaign in which too little happened is no success.
func TestEvidence(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(r *Result)
		ok     bool
	}{
		{"enough", func(*Result) {}, true},
		{"nothing contended", func(r *Result) { r.Report.Contended = 0 }, false},
		{"nothing written", func(r *Result) { r.Stored = 0 }, false},
		{"nothing lost", func(r *Result) { r.Report.Losses = 0 }, false},
		{"nothing lost, and nothing was to be", func(r *Result) { r.Report.Losses, r.Rows[0].Row.Effect = 0, faults.NothingLost }, true},
		{"few refusals judged", func(r *Result) { r.Linearization.Excused = 250 }, false},
		{"few refusals judged on a busy machine", func(r *Result) { r.Linearization.Excused, r.busy = 250, time.Second }, true},
	} {
		r := newResult(fleetSettings(), []faults.Row{{Number: 4, Effect: faults.VictimLoses}})
		r.Report, r.Stored, r.Linearization = &check.Report{Contended: 1, Losses: 1}, 1, check.Linearization{Refusals: 1000, Excused: 100}
		r.Rows[0].Times = 1
		tt.change(r)
		if err := r.coverage(); (err == nil) != tt.ok || err != nil && !errors.Is(err, errCoverage) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
