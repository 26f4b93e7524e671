package campaign

import (
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// errCoverage reports that the campaign found nothing wrong, and could not have
// found anything.
var errCoverage = errors.New("campaign: too little happened to show anything")

// Of maxUnjudged refusals, at most one may go unjudged. On a busy machine
// processes need longer to recover, and all may. Of maxUnmade faults, at most one
// may be impossible to make.
const (
	maxUnjudged = 10
	maxUnmade   = 20
)

// coverage returns an error if too little happened for the campaign to show
// anything.
func (r *Result) coverage() error {
	rep, unmade := r.Report, 0
	for _, of := range r.Rows {
		if of.Times == 0 {
			return fmt.Errorf("%w: no fault of row %d was made", errCoverage, of.Row.Number)
		}
		unmade += len(of.Unmade)
	}
	switch {
	case r.busy == 0 && r.Linearization.Excused > r.Linearization.Refusals/maxUnjudged:
		return fmt.Errorf("%w: %d of %d refusals were not judged", errCoverage, r.Linearization.Excused, r.Linearization.Refusals)
	case unmade > r.Faults/maxUnmade:
		return fmt.Errorf("%w: %d faults could not be made, and %d were", errCoverage, unmade, r.Faults)
	case rep.Contended == 0:
		return fmt.Errorf("%w: no call was contended", errCoverage)
	case r.Stored == 0:
		return fmt.Errorf("%w: nothing was written behind the fence", errCoverage)
	case rep.Losses == 0 && slices.ContainsFunc(r.Rows, func(of *RowResult) bool { return of.Times > 0 && costly(of.Row) }):
		return fmt.Errorf("%w: no lock was lost to faults that cost locks", errCoverage)
	}
	if r.settings.Mixed > 0 {
		if err := mixedCoverage(rep, r.settings.Store); err != nil {
			return err
		}
	}
	return r.servicesCoverage()
}

// mixedCoverage is coverage for the callers of readers, sets, limits and
// stacks.
func mixedCoverage(rep *check.Report, store fleet.Store) error {
	wanted := []history.Kind{history.Set, history.Groups, history.Limit, history.Stack}
	if store.Readers() {
		wanted = append(wanted, history.Reader)
	}
	for _, kind := range wanted {
		if k := rep.Kinds[kind]; k == nil || k.Results[history.OK] == 0 || k.Results[history.Held] == 0 {
			return fmt.Errorf("%w: of the calls of kind %s, some must be granted and some refused", errCoverage, kind)
		}
	}
	if store.Readers() && rep.Beside == 0 || rep.Full == 0 {
		return fmt.Errorf("%w: %d readers were beside readers, and %d admissions took a last place", errCoverage, rep.Beside, rep.Full)
	}
	return nil
}

// costly reports whether row costs a process its connection and the locks on
// it.
func costly(row faults.Row) bool {
	return row.Effect == faults.VictimLoses || row.Effect == faults.AllLose
}
