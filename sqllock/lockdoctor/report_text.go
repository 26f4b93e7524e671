package lockdoctor

import (
	"fmt"
	"strings"
)

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
