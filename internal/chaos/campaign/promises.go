package campaign

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// slack is what a busy machine may take beyond a goal before it is a violation:
// the pause of who asks again, reconnecting, and a share of the processor for
// each.
const slack = 250 * time.Millisecond

// A promise is within which time the keys of a victim are to be granted again.
type promise struct {
	rows []int
	from check.Origin
	goal time.Duration
}

func promises(lease time.Duration) []promise {
	return []promise{
		// The server sees that the connection has ended.
		{[]int{1, 7, 8, 11, 12, 13}, check.FromBegin, time.Second},
		// The lease passes.
		{[]int{2, 4, 5}, check.FromBegin, lease + 500*time.Millisecond},
		// Nothing happens until it is mended; then what is overdue does.
		{[]int{16}, check.FromEnd, time.Second},
		// The server starts anew.
		{[]int{14, 15}, check.FromEnd, 2 * time.Second},
	}
}

const (
	// toldGoal is how soon holders are to know of a connection that was closed,
	// where the socket is watched: 99 in 100 of them.
	toldGoal = 100 * time.Millisecond

	// toldBound is where to miss the goal becomes a violation: the time holds what
	// it took to make the fault, on processors that the whole fleet shares.
	toldBound = time.Second
)

// closes is the rows in which a connection is closed, and both sides hear of it.
var closes = []int{8, 13, 14, 15}

// parts is the rows in which client and server cannot hear each other, so that the
// client must know before the server frees.
var parts = []int{2, 4, 5, 16}

// tells is the rows whose faults cost locks at a moment that is known.
var tells = []int{2, 4, 5, 7, 8, 13, 14, 15, 16, 20, 25}

// stopped is the rows during which a process may not run, and so cannot note
// what it was told.
var stopped = []int{2, 3, 27}

// measures is what is looked at in the history as it is.
func (r *Result) measures(events []history.Event) []check.Option {
	options := []check.Option{frozen(events), check.WithTelling(tells...)}
	for _, i := range r.injuries {
		options = append(options, check.WithTrouble(i.Fault.Begin, i.Fault.End+history.Moment(i.Recovery)))
	}
	return options
}

// sweepOptions is what the fault table says about the time in which the keys of
// a victim must be granted again. Nothing, where faults overlap: who should get
// the key may be frozen, too.
func (r *Result) sweepOptions(events []history.Event) []check.Option {
	options := []check.Option{frozen(events)}
	if r.overlapping {
		return options
	}
	for _, p := range promises(r.settings.Lease) {
		for _, row := range p.rows {
			options = append(options, check.WithRecovery(row, p.from, p.goal+slack), check.WithGoal(row, p.goal))
		}
	}
	return options
}

func frozen(events []history.Event) check.Option {
	return check.WithFrozen(check.FrozenIn(events, stopped...))
}

// errTold: holders were told too late.
var errTold = errors.New("campaign: holders were told too late")

// tellings is what of the promises about telling was broken.
func (r *Result) tellings() (err error) {
	for _, t := range r.Report.Tellings {
		if late := lateTelling(t); late != "" {
			err = errors.Join(err, fmt.Errorf("%w: row %d: %s", errTold, t.Row, late))
		}
	}
	return err
}

// lateTelling is how t broke a promise, empty if it did not.
func lateTelling(t *check.Telling) string {
	switch {
	case slices.Contains(parts, t.Row) && t.After > 0:
		return fmt.Sprintf("%d of %d after the next grant", t.After, t.Locks)
	case slices.Contains(closes, t.Row) && t.P99 > toldBound:
		return fmt.Sprintf("99 in 100 within %v, bound %v", t.P99, toldBound)
	}
	return ""
}

// missedGoal is a remark about what is not as it should be and no violation,
// empty if there is none.
func missedGoal(t *check.Telling) string {
	if slices.Contains(closes, t.Row) && t.P99 > toldGoal {
		return fmt.Sprintf("told: p99 over %v", toldGoal)
	}
	return ""
}
