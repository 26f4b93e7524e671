package promlatchkey

import (
	"strings"

	"github.com/latchkey-go/latchkey/sqllock/lockwatch"
)

// findingKinds are shown from the first scrape on, so that a rule sees the
// first finding as an increase.
var findingKinds = []string{
	word(lockwatch.LateHeartbeat), word(lockwatch.RegistryNotWritten), word(lockwatch.WaitCycle),
	word(lockwatch.HeldLong), word(lockwatch.WatchFailed),
}

// A Finding is reported when it begins and when it is over. In between a
// session that Watch has ended is reported once.
const (
	begun      = "begun"
	over       = "over"
	terminated = "terminated"
)

var findingStates = []string{begun, over, terminated}

// A findingState is what of a Finding its labels hold.
type findingState struct{ kind, state string }

func stateOf(f lockwatch.Finding) findingState {
	switch {
	case f.Over:
		return findingState{word(f.Kind), over}
	case f.Terminated:
		return findingState{word(f.Kind), terminated}
	}
	return findingState{word(f.Kind), begun}
}

// word is kind in the spelling of the other labels.
func word(kind lockwatch.FindingKind) string { return strings.ReplaceAll(string(kind), " ", "_") }
