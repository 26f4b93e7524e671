package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
)

// A scenario is what happens to a fleet at work.
type scenario func(ctx context.Context, f *fleet.Fleet, result *Result, log *faultLog) error

// runScenario starts a fleet, runs a scenario on it, ends its work and checks
// the history.
func runScenario(ctx context.Context, plan Plan, rows []faults.Row, run scenario) (result *Result, err error) {
	f, err := fleet.Start(ctx, plan.Fleet)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if promisesOf(f.Store, f.Lease).watched {
		if err := watched(ctx, f); err != nil {
			return nil, err
		}
	}
	result = newResult(plan.Fleet, rows)
	result.command, result.busy = plan.Command, plan.Busy
	if result.Server, err = f.Version(ctx); err != nil {
		return nil, err
	}
	log, err := newFaultLog(plan.Fleet.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, log.close()) }()
	endWatch, err := watch(f)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	err = run(ctx, f, result, log)
	result.Took = time.Since(begin)
	err = errors.Join(err, endWatch())
	if ctx.Err() != nil { // what there is, is checked all the same
		result.interrupted = true
		err = errors.Join(errInterrupted, context.Cause(ctx), err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainWithin)
	defer cancel()
	err = errors.Join(err, f.Rest(ctx, plan.Fleet.Lease+goneWithin), f.Drain(ctx), result.gather(ctx, f), result.save(plan.Fleet.Dir))
	return result, errors.Join(err, result.check(plan.Fleet.Dir))
}

// errInterrupted reports that a campaign was ended before its time.
var errInterrupted = errors.New("campaign: interrupted")

// drainWithin bounds the end of the fleet's work.
const drainWithin = 5 * time.Minute

// goneWithin is how long after a lease traces of calls that gave up may last.
const goneWithin = 30 * time.Second

// watched checks that every process watches its socket, whichever its driver.
// Otherwise its times say nothing about a closed connection.
func watched(ctx context.Context, f *fleet.Fleet) error {
	for _, m := range f.Members {
		err := fleet.Poll(ctx, 30*time.Second, "a process to watch its socket", func(context.Context) (bool, error) {
			s := m.Process.Status()
			return s.Connected && s.Watched, nil
		})
		if err != nil {
			return fmt.Errorf("campaign: process %d (%s): %w", m.Number, m.Driver, err)
		}
	}
	return nil
}
