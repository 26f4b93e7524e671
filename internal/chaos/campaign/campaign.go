// Package campaign injects faults into a fleet at work, one after the other in
// random order, and has the history checked.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/older"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Plan is what a campaign does.
type Plan struct {
	Rows     []int         // of the fault table; none: all
	Faults   int           // of each row
	Duration time.Duration // go on until then, each row Faults times in a round; 0: one round
	Fleet    fleet.Settings
	Old      string    // a revision of the kit: half of the processes run it; empty: none
	Command  string    // how to repeat it
	Progress io.Writer // a line for each fault
	Least    Least

	// Busy is added to each bound on time. If it is not 0, the campaign goes on after
	// a fault whose guarantee was violated.
	Busy time.Duration
}

// Least is what a campaign must have, or it fails.
type Least struct{ Operations, Faults int }

// drainWithin bounds the end of the fleet's work, and goneWithin how long after a
// lease traces of calls that gave up may last.
const (
	drainWithin = 5 * time.Minute
	goneWithin  = 30 * time.Second
)

// errInterrupted reports that a campaign was ended before its time.
var errInterrupted = errors.New("campaign: interrupted")

// Run runs a campaign and checks its history. The error reports what was
// violated, or what kept the campaign from going on. The Result is there in any
// case, except for a campaign that could not begin.
func Run(ctx context.Context, plan Plan) (result *Result, err error) {
	rows, err := chosen(plan.Fleet.Store, plan.Rows)
	if err != nil {
		return nil, err
	}
	f, err := fleet.Start(ctx, plan.Fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	result = &Result{Settings: plan.Fleet, Command: plan.Command, Busy: plan.Busy, Least: plan.Least}
	for _, row := range rows {
		result.Rows = append(result.Rows, row.Number)
	}
	if result.Server, err = f.Version(ctx); err != nil {
		return nil, err
	}
	begin := time.Now()
	err = result.inject(ctx, f, plan, rows)
	result.Took = time.Since(begin)
	if ctx.Err() != nil { // what there is, is checked all the same
		result.Interrupted = true
		err = errors.Join(errInterrupted, context.Cause(ctx), err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	err = errors.Join(err, f.Rest(ctx, plan.Fleet.Lease+goneWithin), f.Drain(ctx))
	stored, failed := worker.Stored(ctx, f.DB)
	result.Stored, result.Gathered = stored, failed == nil
	return result, errors.Join(err, failed, result.judge())
}

// chosen returns the rows of a store with these numbers; all rows if there are
// none. A row that only other stores have is left out.
func chosen(store fleet.Store, numbers []int) (rows []faults.Row, err error) {
	for _, row := range faults.Rows(store) {
		if len(numbers) == 0 || slices.Contains(numbers, row.Number) {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("campaign: %s has none of the rows %v", store, numbers)
	}
	return rows, nil
}

// firstFault keeps the random choices of faults apart from all others of a seed.
const firstFault = 1 << 32

// quiet bounds for how long the load goes on undisturbed between two faults.
const quiet = 300 * time.Millisecond

// inject injects faults until the plan is fulfilled, or until one has an effect
// that it may not have. Each fault has choices of its own, however many the one
// before made.
func (r *Result) inject(ctx context.Context, f *fleet.Fleet, plan Plan, rows []faults.Row) (violated error) {
	injector := &faults.Injector{Fleet: f, Busy: plan.Busy}
	orders := rand.New(rand.NewPCG(plan.Fleet.Seed, 2))
	begin, n := time.Now(), uint64(0)
	for round := 0; round == 0 || time.Since(begin) < plan.Duration; round++ {
		for _, row := range order(orders, rows, plan.Faults) {
			if round > 0 && time.Since(begin) >= plan.Duration {
				return violated
			}
			n++
			injector.Rand = rand.New(rand.NewPCG(plan.Fleet.Seed, firstFault+n))
			outcome, err := injector.Inject(ctx, row)
			if err != nil && !isViolation(err) && ctx.Err() == nil {
				outcome, err = unmade(ctx, injector, outcome, err)
			}
			if err != nil {
				outcome.Recovery = time.Hour // for good
				r.Failures = append(r.Failures, Failure{row.Number, err.Error()})
			}
			if outcome.Fault.Begin != 0 {
				r.Outcomes = append(r.Outcomes, outcome)
			}
			fmt.Fprintf(plan.Progress, "%8s  row %-2d %-45s %3d lost, served again after %v%s\n",
				time.Since(begin).Round(time.Millisecond), row.Number, row.Name, outcome.Lost, outcome.Recovery.Round(time.Millisecond), outcome.Unmade)
			switch {
			case ctx.Err() != nil:
				return violated
			case err != nil && (plan.Busy == 0 || !isViolation(err)):
				return errors.Join(violated, err)
			}
			violated = errors.Join(violated, err)
			if err := worker.Pause(ctx, time.Duration(injector.Rand.Int64N(int64(quiet)))); err != nil {
				return violated
			}
		}
	}
	return violated
}

func isViolation(err error) bool { return errors.As(err, new(*check.Rule)) }

// unmade returns a fault that could not be made because of failed, which is no
// violation. The campaign goes on if every process serves all the same.
func unmade(ctx context.Context, f *faults.Injector, outcome faults.Outcome, failed error) (faults.Outcome, error) {
	outcome.Fault.End = history.Now()
	if err := f.Serving(ctx, faults.RecoverWithin+f.Busy); err != nil {
		return outcome, errors.Join(failed, err)
	}
	outcome.Recovery = time.Duration(history.Now() - outcome.Fault.End)
	outcome.Unmade = "; not made: " + failed.Error()
	return outcome, nil
}

// order is each of rows n times, in random order.
func order(rng *rand.Rand, rows []faults.Row, n int) (all []faults.Row) {
	for range n {
		all = append(all, rows...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// Each runs a campaign for each of stores, one after the other. Each has an
// equal share of plan.Duration, and a directory of its own for its histories.
// After an error the other stores still have their turn, unless ctx has ended.
func Each(ctx context.Context, plan Plan, stores []fleet.Store) (err error) {
	if plan.Old != "" {
		dir, err := os.MkdirTemp("", "latchkey-older-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		if plan.Fleet.Old, err = older.Build(ctx, plan.Old, dir); err != nil {
			return err
		}
	}
	for _, store := range stores {
		if ctx.Err() != nil {
			return errors.Join(err, fmt.Errorf("%s: campaign: not run", store))
		}
		p := plan
		p.Fleet.Store, p.Fleet.Dir = store, filepath.Join(plan.Fleet.Dir, string(store))
		p.Duration /= time.Duration(len(stores))
		fmt.Fprintf(plan.Progress, "%s:\n", store)
		result, failed := Run(ctx, p)
		if result != nil {
			fmt.Fprintf(plan.Progress, "\n%v\n", result)
		}
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", store, failed))
		}
	}
	return err
}
