package campaign

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// A Health is how often a loss was reported although nothing was wrong.
type Health struct {
	Hogs        int // see Plan
	Holds       int // locks
	Losses      int // of them, reported lost
	Connections uint64
}

// errFalseLoss reports more losses than there may be without a fault.
var errFalseLoss = errors.New("campaign: losses were reported, and nothing was wrong")

// Of enduring holds, one may be lost when there is too little processor time.
// With enough of it, none may.
const enduring = 10_000

// Healthy lets a fleet work for plan.Duration without faults, while plan.Hogs
// take processor time from it. It checks the history, and that next to nothing
// was reported lost.
func Healthy(ctx context.Context, plan Plan) (*Result, error) {
	h := &Health{Hogs: plan.Hogs}
	return runScenario(ctx, plan, nil, func(ctx context.Context, f *fleet.Fleet, result *Result, _ *faultLog) error {
		result.Health = h
		return h.live(ctx, f, plan)
	})
}

// evaluate compares the losses in the history with what is allowed.
func (h *Health) evaluate(report *check.Report) error {
	h.Holds, h.Losses = report.Locks, report.Losses
	return h.err()
}

// live lets f work undisturbed.
func (h *Health) live(ctx context.Context, f *fleet.Fleet, plan Plan) (err error) {
	if plan.Hogs > 0 {
		stop, err := starve.Start(plan.Hogs)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	const every = time.Minute // a line about progress
	for begin := time.Now(); time.Since(begin) < plan.Duration; {
		if err := worker.Pause(ctx, min(every, plan.Duration-time.Since(begin))); err != nil {
			return err
		}
		var holds, losses int64
		h.Connections = 0
		for _, m := range f.Members {
			t, err := f.Tally(ctx, m, history.Now())
			if err != nil {
				return err
			}
			h.Connections += t.Connections
			holds += m.Process.Status().Granted
			losses += t.Locks
		}
		fmt.Fprintf(plan.Progress, "%8s  %d holds, %d lost\n", time.Since(begin).Round(time.Second), holds, losses)
	}
	return f.Serving(ctx, servedWithin)
}

// servedWithin is long enough for any process that serves at all.
const servedWithin = 20 * time.Second

func (h *Health) err() error {
	allowed := 0
	if h.Hogs > 0 {
		allowed = h.Holds / enduring
	}
	switch {
	case h.Holds == 0:
		return errors.New("campaign: nothing was locked: that shows nothing")
	case h.Losses > allowed || h.Hogs == 0 && h.Connections > 0:
		return fmt.Errorf("%w: %v", errFalseLoss, h)
	}
	return nil
}

// String gives the rate in losses per 10,000 holds.
func (h *Health) String() string {
	return fmt.Sprintf("no faults, %d processor hogs: %d of %d holds reported lost, %.2f in 10,000; %d connections lost",
		h.Hogs, h.Losses, h.Holds, float64(h.Losses)*10_000/float64(max(h.Holds, 1)), h.Connections)
}
