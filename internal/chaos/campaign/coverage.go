package campaign

import (
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
)

// errCoverage: the campaign found nothing wrong, and could not have.
var errCoverage = errors.New("campaign: that shows nothing")

// unjudged is of how many refusals one at the most may go without a judgement.
const unjudged = 10

// evidence is an error if too little happened for a campaign to show anything.
func (r *Result) coverage() error {
	rep := r.Report
	switch {
	case len(r.Rows) == 0: // there were to be no faults: it is losses that would show something
		return nil
	case r.Linearization.Excused > r.Linearization.Refusals/unjudged:
		return fmt.Errorf("%w: %d of %d refusals were not judged", errCoverage, r.Linearization.Excused, r.Linearization.Refusals)
	case rep.Contended == 0:
		return fmt.Errorf("%w: no call was contended", errCoverage)
	case r.Stored == 0:
		return fmt.Errorf("%w: nothing was written behind the fence", errCoverage)
	case rep.Losses == 0 && slices.ContainsFunc(r.Rows, func(of *RowResult) bool { return of.Times > 0 && costly(of.Row) }):
		return fmt.Errorf("%w: no lock was lost to faults that cost locks", errCoverage)
	}
	return nil
}

// costly reports whether row takes a connection, and the locks on it, from
// somebody.
func costly(row faults.Row) bool {
	return row.Effect == faults.VictimLoses || row.Effect == faults.AllLose
}
