// Package campaign injects faults into a fleet at work, one after the other in
// random order, and has the history checked.
package campaign

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Plan is what a campaign does.
type Plan struct {
	Rows     []int         // of the fault table; none: all
	Faults   int           // of each row
	Duration time.Duration // go on until then, each row Faults times in a round; 0: one round
	Fleet    fleet.Settings
	Command  string    // how to repeat it
	Progress io.Writer // a line for each fault

	// Busy is added to each bound on time: on notices, on calls, on the return of a
	// key and on the time without a leader. It is not added to those of the
	// registry. If it is not 0, the campaign goes on after a fault whose guarantee
	// was violated, and any number of refusals may go unjudged.
	Busy time.Duration
}

// Run runs a campaign and checks its history. The error reports what was
// violated, or what kept the campaign from going on. The Result is there in any
// case, except for a campaign that could not begin.
func Run(ctx context.Context, plan Plan) (*Result, error) {
	rows, err := chosen(plan.Fleet.Store, plan.Rows)
	if err != nil {
		return nil, err
	}
	return runScenario(ctx, plan, rows, func(ctx context.Context, f *fleet.Fleet, result *Result, log *faultLog) error {
		return inject(ctx, f, plan, rows, result, log)
	})
}

// chosen returns the rows of a store with these numbers; all rows if there are
// none. A row that only other stores have is left out.
func chosen(store fleet.Store, numbers []int) ([]faults.Row, error) {
	all := faults.Rows(store)
	if len(numbers) == 0 {
		return all, nil
	}
	var rows []faults.Row
	for _, n := range numbers {
		is := func(r faults.Row) bool { return r.Number == n }
		if i := slices.IndexFunc(all, is); i >= 0 {
			rows = append(rows, all[i])
		} else if !slices.ContainsFunc(fleet.Stores(), func(s fleet.Store) bool { return slices.ContainsFunc(faults.Rows(s), is) }) {
			return nil, fmt.Errorf("campaign: there is no row %d here", n)
		}
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("campaign: %v has none of the rows %v", store, numbers)
	}
	return rows, nil
}

// inject injects faults until the plan is fulfilled, or until one has an effect
// that it may not have.
func inject(ctx context.Context, f *fleet.Fleet, plan Plan, rows []faults.Row, result *Result, log *faultLog) (violated error) {
	injector := &faults.Injector{Fleet: f}
	orders := rand.New(rand.NewPCG(plan.Fleet.Seed, 2))
	begin, n := time.Now(), uint64(0)
	for round := 0; round == 0 || time.Since(begin) < plan.Duration; round++ {
		for _, row := range order(orders, rows, plan.Faults) {
			if round > 0 && time.Since(begin) >= plan.Duration {
				break
			}
			// Each fault has choices of its own, however many the one before made.
			n++
			injector.Rand = rand.New(rand.NewPCG(plan.Fleet.Seed, firstFault+n))
			outcome, err := injector.Inject(ctx, row)
			if ctx.Err() != nil { // the campaign was interrupted
				result.cut(outcome)
				return errors.Join(context.Cause(ctx), log.fault(outcome.Fault))
			}
			if err != nil && !errors.Is(err, faults.ErrViolated) {
				outcome, err = unmade(ctx, f, outcome, err)
			}
			if outcome.Unmade != nil {
				fmt.Fprintf(plan.Progress, "not made: %v\n", outcome.Unmade)
			}
			result.add(row, outcome, err)
			fmt.Fprintf(plan.Progress, "%8s  row %-2d %-38s %3d lost, served again after %v\n",
				time.Since(begin).Round(time.Millisecond), row.Number, row.Name, outcome.Lost, outcome.Recovery.Round(time.Millisecond))
			if plan.Busy > 0 && errors.Is(err, faults.ErrViolated) {
				violated, err = errors.Join(violated, err), nil
			}
			if err := errors.Join(err, log.fault(outcome.Fault)); err != nil {
				return errors.Join(violated, err)
			}
			if err := worker.Pause(ctx, upTo(injector.Rand, quiet)); err != nil {
				return errors.Join(violated, err)
			}
		}
	}
	if plan.Fleet.Services > 0 && plan.Fleet.Store.Registry() {
		return errors.Join(violated, worker.Pause(ctx, registryTimes(plan.Fleet.Lease).Written+calm))
	}
	return violated
}

// unmade returns a fault that could not be made because of failed, which is no
// violation. The campaign goes on if every process serves all the same.
func unmade(ctx context.Context, f *fleet.Fleet, outcome faults.Outcome, failed error) (faults.Outcome, error) {
	outcome.Fault.End = history.Now()
	if err := f.Serving(ctx, servedWithin); err != nil {
		return outcome, errors.Join(failed, err)
	}
	outcome.Recovery = time.Duration(history.Now() - outcome.Fault.End)
	outcome.Unmade = failed
	return outcome, nil
}

// firstFault keeps the random choices of faults apart from all others of a seed.
const firstFault = 1 << 32

// order is each of rows n times, in random order.
func order(rng *rand.Rand, rows []faults.Row, n int) []faults.Row {
	var all []faults.Row
	for range n {
		all = append(all, rows...)
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// servedWithin is long enough for any process that serves at all.
const servedWithin = 20 * time.Second

// quiet bounds for how long the load goes on undisturbed between two faults.
const quiet = 300 * time.Millisecond

// calm is how long an operator looks on when the registry has recovered from the
// last fault. What a look must show is judged only where there is no trouble.
const calm = time.Second

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
