package campaign

import (
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A look while a fault is in force, which does not show the wait of process 2.
func TestTroubleOfServices(t *testing.T) {
	rows := faults.Rows(fleet.Postgres)
	of := func(number int) faults.Row {
		for _, r := range rows {
			if r.Number == number {
				return r
			}
		}
		t.Fatalf("no row %d", number)
		return faults.Row{}
	}
	events := []history.Event{
		{Try: &history.Try{Process: 2, Key: 1, Kind: history.Term, Waits: true, Begin: 0, End: 9000 * ms, Result: history.GaveUp}},
		{Serviced: history.Serviced{Look: &history.Look{Begin: 5000 * ms, End: 5010 * ms}}},
	}
	for _, tt := range []struct {
		name string
		row  int
		ok   bool
	}{
		{"another process is frozen", 2, false},
		{"the server process of another is frozen", 16, true},
		{"the server is restarted", 15, true},
		{"nothing is done to the fleet", 17, false},
	} {
		r := newResult(fleet.Settings{Lease: time.Second, Services: 1}, rows)
		f := history.Fault{Row: tt.row, Process: 1, Begin: 4500 * ms, End: 4600 * ms}
		if tt.row == 15 || tt.row == 17 {
			f.Process = 0
		}
		r.add(of(tt.row), faults.Outcome{Fault: f, Recovery: 500 * time.Millisecond}, nil)
		times := registryTimes(time.Second)
		_, err := check.Services(events, check.Left{}, check.ServiceParams{Trouble: r.trouble(), Registry: &times})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v, want an error: %v", tt.name, err, !tt.ok)
		}
	}
}
