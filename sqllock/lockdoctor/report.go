package lockdoctor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Report is what [Check] found. It is a plain value: once Check has returned
// it, any number of goroutines may read it.
type Report struct {
	At      time.Time       // the beginning, by the clock of this process
	Dialect sqllock.Dialect // empty if the database did not say what it is
	Checks  []Result        // in a fixed order for each dialect; a check that does not apply is skipped
}

// A Result is the outcome of one check. It marshals to JSON with the names
// "name", "state", "reason" and "fix".
//
// Invariant: no text holds a key, an id, a host, a user or a connection string.
// The zero value is not the result of any check.
type Result struct {
	Name   string `json:"name"` // one word, the same in every version: see docs/doctor.md
	State  State  `json:"state"`
	Reason string `json:"reason"` // what was found, in a sentence without a full stop
	Fix    string `json:"fix,omitempty"`
}

// A State says how a check ended. States are ordered: see [Report.Worst].
type State string

// The states of a [Result].
const (
	OK      State = "ok"
	Warning State = "warning" // it works now, and may fail later
	Error   State = "error"   // locks fail or do not exclude, or they will not at the next change
	Skipped State = "skipped" // the check does not apply, or could not be made: the reason says which
)

// severity orders states. A check that was skipped is as good as one that
// passed.
func (s State) severity() int { return max(slices.Index([]State{OK, Warning, Error}, s), 0) }

// Worst returns Error if a check ended with it, otherwise Warning if one ended
// with that, and otherwise OK.
func (r *Report) Worst() State {
	worst := OK
	for _, c := range r.Checks {
		if c.State.severity() > worst.severity() {
			worst = c.State
		}
	}
	return worst
}

// ExitCode returns the exit code of a command that prints r: 0 if no check
// warns, 1 for a warning and 2 for an error.
func (r *Report) ExitCode() int { return r.Worst().severity() }

// Find returns the result of the check with a name, and false if r has none.
func (r *Report) Find(name string) (Result, bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c, true
		}
	}
	return Result{}, false
}

// MarshalJSON returns r as an object with the names "at", "dialect", "state",
// which is that of Worst, and "checks".
func (r *Report) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		At      time.Time       `json:"at"`
		Dialect sqllock.Dialect `json:"dialect"`
		State   State           `json:"state"`
		Checks  []Result        `json:"checks"`
	}{r.At, r.Dialect, r.Worst(), r.Checks})
}

// String returns r as text for people: a line for each check with its state, its
// name and the reason, and below that the fix. The last line counts.
//
//	ok       version     PostgreSQL 15.18
//	warning  lock-table  55 % of the places in the server's lock table are in use
//	                     Raise max_locks_per_transaction to …
func (r *Report) String() string {
	var b strings.Builder
	widest := 0
	for _, c := range r.Checks {
		widest = max(widest, len(c.Name))
	}
	const stateWidth = len(Warning)
	below := "\n" + strings.Repeat(" ", stateWidth+2+widest+2)
	counts := map[State]int{}
	for _, c := range r.Checks {
		counts[c.State]++
		fmt.Fprintf(&b, "%-*s  %-*s  %s", stateWidth, c.State, widest, c.Name, c.Reason)
		if c.Fix != "" {
			b.WriteString(below + strings.ReplaceAll(c.Fix, "\n", below))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n%s: %d ok, %d skipped, %d warning, %d error\n", r.Worst(), counts[OK], counts[Skipped], counts[Warning], counts[Error])
	return b.String()
}
