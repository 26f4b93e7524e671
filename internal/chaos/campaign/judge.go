package campaign

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// slack is what the campaign itself may take beyond a goal before it is a
// violation. It covers the pause before a caller asks again, the time to connect,
// and the wait for a processor. Plan.Busy comes on top.
const slack = 250 * time.Millisecond

// judge checks the history.
func (r *Result) judge() error {
	events, err := history.ReadDir(r.Settings.Dir)
	if err != nil {
		return err
	}
	for _, o := range r.Outcomes {
		events = append(events, history.Event{Fault: &o.Fault})
	}
	r.Report = check.Sweep(events, r.facts(events))
	if err := r.Report.Err(); err != nil || r.Interrupted {
		return err
	}
	return r.coverage()
}

// facts returns what the check needs to know.
func (r *Result) facts(events []history.Event) check.Facts {
	lease := r.Settings.Lease
	facts := check.Facts{
		Excuse: r.excuses(events), Complete: !r.Interrupted, TokensRise: r.Settings.Store.Leased(),
		Kills: faults.Numbers(faults.Kills), Freezes: faults.Numbers(faults.Freezes), Slows: faults.Numbers(faults.Slows), Cuts: faults.Numbers(faults.Cuts, faults.Freezes),
		Effects:     map[int]check.Effect{},
		CallTimeout: time.Second + slack + r.Busy, Free: lease + slack + r.Busy,
		Stored: r.Stored, Gathered: r.Gathered,
	}
	for _, row := range faults.Rows(r.Settings.Store) {
		p := row.On[r.Settings.Store]
		e := check.Effect{Told: p.Effect.Costs(), Slack: slack + r.Busy, FromEnd: p.AtEnd}
		if p.Back > 0 {
			e.Back = time.Duration(p.Leases)*lease + p.Back
		}
		if e.Told || e.Back > 0 {
			facts.Effects[row.Number] = e
		}
	}
	for _, o := range r.Outcomes {
		if !slices.Contains(faults.Numbers(faults.Nothing), o.Fault.Row) {
			o.Fault.End += history.Moment(o.Recovery)
			facts.Trouble = append(facts.Trouble, o.Fault)
		}
	}
	return facts
}

// errCoverage reports that the campaign found nothing wrong, and could not have
// found anything.
var errCoverage = errors.New("campaign: too little happened to show anything")

// Of mostUnmade faults, at most one may be impossible to make.
const mostUnmade = 20

// coverage returns an error if too little happened for the campaign to show
// anything.
func (r *Result) coverage() error {
	rep, unmade, costly, felt := r.Report, 0, false, false
	made := map[int]int{}
	for _, o := range r.Outcomes {
		if o.Unmade != "" {
			unmade++
			continue
		}
		made[o.Fault.Row]++
		costly = costly || r.promise(o.Fault.Row).Effect.Costs()
		felt = felt || !slices.Contains(faults.Numbers(faults.Nothing), o.Fault.Row)
	}
	for _, row := range r.Rows {
		if made[row] == 0 {
			return fmt.Errorf("%w: no fault of row %d was made", errCoverage, row)
		}
	}
	if err := r.bothServed([]history.Kind{history.Plain}); err != nil {
		return err
	}
	switch {
	case rep.Operations < r.Least.Operations || len(r.Outcomes)-unmade < r.Least.Faults:
		return fmt.Errorf("%w: %d operations and %d faults, want %+v", errCoverage, rep.Operations, len(r.Outcomes)-unmade, r.Least)
	case unmade > len(r.Outcomes)/mostUnmade:
		return fmt.Errorf("%w: %d of %d faults could not be made", errCoverage, unmade, len(r.Outcomes))
	case rep.Contended == 0 || felt && rep.Troubled == 0:
		return fmt.Errorf("%w: no call was contended, or none ran during a fault", errCoverage)
	case len(r.Stored) == 0:
		return fmt.Errorf("%w: nothing was written behind the fence", errCoverage)
	case rep.Losses == 0 && costly:
		return fmt.Errorf("%w: no lock was lost to faults that cost locks", errCoverage)
	case r.Settings.Mixed == 0:
		return nil
	case rep.Full == 0:
		return fmt.Errorf("%w: no last place of a limit was taken", errCoverage)
	}
	kinds := []history.Kind{history.Set, history.Limit, history.Stack}
	if r.Settings.Store == fleet.Postgres {
		kinds = append(kinds, history.Reader)
	}
	if err := r.bothServed(kinds); err != nil {
		return err
	}
	for _, kind := range kinds {
		if of := rep.Calls[kind]; of[history.OK] == 0 || of[history.Held] == 0 || kind == history.Reader && rep.Beside == 0 {
			return fmt.Errorf("%w: of the calls of kind %s, some must be granted and some refused", errCoverage, kind)
		}
	}
	return nil
}

// bothServed returns an error if one of two versions was granted, or wrote, too
// little for a campaign of both.
func (r *Result) bothServed(kinds []history.Kind) error {
	all := 0
	for _, share := range r.Report.Versions {
		all += share.All()
	}
	if r.Settings.Old == "" {
		return nil
	}
	if n := len(r.Report.Versions); n != 2 {
		return fmt.Errorf("%w: processes of %d versions worked, want 2", errCoverage, n)
	}
	for version, share := range r.Report.Versions {
		few := share.All() < all/4 || share.After < share.All()/10 || share.Writes[history.OK] == 0
		for _, kind := range kinds {
			few = few || share.Grants[kind] == 0
		}
		if few {
			return fmt.Errorf("%w: to %s, of %d grants: %+v", errCoverage, version, all, *share)
		}
	}
	return nil
}
