package campaign

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// slack is what a busy machine may take beyond what is promised: the pause of
// who asks again, reconnecting, and a share of the processor for each.
const slack = 3 * time.Second

// sweepOptions is what the fault table says about the time in which the keys of
// a victim must be granted again.
func (r *Result) sweepOptions(events []history.Event) []check.Option {
	lease := r.settings.Lease
	options := []check.Option{check.WithFrozen(check.FrozenIn(events, stopped...))}
	for _, rule := range []struct {
		rows  []int
		from  check.Origin
		bound time.Duration
	}{
		// The server sees that the connection has ended.
		{[]int{1, 7, 8, 11, 12, 13}, check.FromBegin, slack},
		// The lease passes.
		{[]int{2, 4, 5}, check.FromBegin, lease + slack},
		// Nothing happens until it is mended.
		{[]int{14, 15, 16}, check.FromEnd, lease + slack},
	} {
		for _, row := range rule.rows {
			options = append(options, check.WithRecovery(row, rule.from, rule.bound))
		}
	}
	return options
}

// stopped is the rows during which a process may not run, and so cannot note
// what it was told.
var stopped = []int{2, 3, 27}
