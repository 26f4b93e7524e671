package check

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

func TestCounts(t *testing.T) {
	events := join(turn(1, 1, 0, 3), list(
		refused(2, 0.05, 0.2), // beside the grant
		refused(1, 1, 1.2),    // beside a call of its own process
		refused(1, 1.1, 1.3),
		refused(3, 2.95, 3), // beside the Unlock
		tried(2, 5, 6, history.Unavailable),
		wrote(1, history.OK), wrote(1, history.Fenced),
		fault(kill, 1, 8, 9), fault(freeze, 1, 9, 10), fault(kill, 2, 10, 11),
	), onKey(8, list(granted(2, 2, 0, 0.5), told(2, 2, 1, 2, 3))))
	r := Sweep(events)
	for _, tt := range []struct {
		name      string
		got, want int
	}{
		{"keys", r.Keys, 2},
		{"operations", r.Operations, 9},
		{"contended", r.Contended, 4},
		{"locks", r.Locks, 2},
		{"losses", r.Losses, 1},
		{"refusals", r.Tries[history.Held], 4},
		{"grants", r.Tries[history.OK], 2},
		{"unavailable", r.Tries[history.Unavailable], 1},
		{"unlocks", r.Unlocks[history.OK], 1},
		{"lost unlocks", r.Unlocks[history.Lost], 1},
		{"writes", r.Writes[history.Fenced], 1},
		{"kills", r.Faults[kill], 2},
		{"freezes", r.Faults[freeze], 1},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, tt.got, tt.want)
		}
	}
	for _, line := range []string{"contended", "valid at once", "tries held", "faults of row 1"} {
		if !strings.Contains(r.String(), line) {
			t.Errorf("the table has no line %q:\n%s", line, r)
		}
	}
}
