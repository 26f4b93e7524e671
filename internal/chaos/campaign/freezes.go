package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/faults"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// alwaysRunning is how many processes are not frozen at any moment. One of them
// takes the key of a frozen process, another one contends for it.
const alwaysRunning = 2

// frozenRow is one kind of fault, in a campaign of its own: it counts as row 2.
var frozenRow = faults.Row{Number: 2, Name: "frozen for 0.7 to 1.5 leases"}

// Freezes freezes processes of a fleet plan.Freezes times and checks the
// history. Several are frozen at a time, each while it holds a lock.
//
// A holder guards its work by Lock.Err. What it does after it wakes up is late
// if another process has got the key by then.
func Freezes(ctx context.Context, plan Plan) (*Result, error) {
	if plan.Fleet.Processes <= alwaysRunning {
		return nil, fmt.Errorf("campaign: to freeze processes takes more than %d of them", alwaysRunning)
	}
	return runScenario(ctx, plan, []faults.Row{frozenRow}, func(ctx context.Context, f *fleet.Fleet, result *Result, log *faultLog) error {
		result.overlapping = true
		z := &freezer{fleet: f, result: result, log: log, plan: plan, begin: time.Now(),
			slots: make(chan struct{}, plan.Fleet.Processes-alwaysRunning)}
		return z.run(ctx)
	})
}

// A freezer freezes processes, each by a goroutine of its own.
type freezer struct {
	fleet *fleet.Fleet
	plan  Plan
	begin time.Time
	slots chan struct{} // a token for each process that is frozen, or does not serve again yet

	mu     sync.Mutex // protects what follows
	begun  int        // freezes
	err    error
	result *Result
	log    *faultLog
}

func (z *freezer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var members sync.WaitGroup
	for i, m := range z.fleet.Members {
		rng := rand.New(rand.NewPCG(z.plan.Fleet.Seed, uint64(100+i)))
		members.Go(func() {
			for z.another() {
				outcome, err := z.freeze(ctx, m, rng)
				if err := z.note(outcome, err); err != nil {
					cancel() // nothing more can be learnt
					return
				}
			}
		})
	}
	members.Wait()
	return z.err
}

// another reports whether one more freeze is to be made, and counts it.
func (z *freezer) another() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.err != nil || z.begun >= z.plan.Freezes {
		return false
	}
	z.begun++
	return true
}

// note adds a freeze that ended with err. It returns the first error of all,
// since later ones are consequences.
func (z *freezer) note(outcome faults.Outcome, err error) error {
	z.mu.Lock()
	defer z.mu.Unlock()
	err = errors.Join(err, z.log.fault(outcome.Fault))
	if err == nil || z.err == nil {
		z.result.add(frozenRow, outcome, err)
		z.err = cmp.Or(z.err, err)
	}
	if err == nil && z.result.Faults%50 == 0 {
		fmt.Fprintf(z.plan.Progress, "%8s  %d freezes\n", time.Since(z.begin).Round(time.Second), z.result.Faults)
	}
	return z.err
}

// freeze freezes m at a random moment when it holds a lock, for a random time
// about the lease, and waits until it serves again.
func (z *freezer) freeze(ctx context.Context, m *fleet.Member, rng *rand.Rand) (outcome faults.Outcome, err error) {
	select {
	case z.slots <- struct{}{}:
	case <-ctx.Done():
		return outcome, context.Cause(ctx)
	}
	defer func() { <-z.slots }()
	if err := worker.Pause(ctx, upTo(rng, quiet)); err != nil {
		return outcome, err
	}
	lost, err := z.holding(ctx, m)
	if err != nil {
		return outcome, err
	}
	outcome.Fault = history.Fault{Row: frozenRow.Number, Name: frozenRow.Name, Process: m.Process.Config.Process, Begin: history.Now()}
	if err := m.Process.Freeze(); err != nil {
		return outcome, err
	}
	err = worker.Pause(ctx, time.Duration((0.7+0.8*rng.Float64())*float64(z.fleet.Lease)))
	err = errors.Join(err, m.Process.Thaw())
	outcome.Fault.End = history.Now()
	if err != nil {
		return outcome, err
	}
	err = fleet.Poll(ctx, servedWithin, "a process that was frozen to serve again", func(context.Context) (bool, error) {
		return m.Process.Status().LastOK > outcome.Fault.End, nil
	})
	outcome.Recovery = time.Duration(history.Now() - outcome.Fault.End)
	if err != nil {
		return outcome, err
	}
	after, err := z.fleet.Tally(ctx, m, history.Now())
	outcome.Lost = after.Locks - lost
	return outcome, err
}

// holding waits until m says that it holds a lock, and returns how many it has
// lost by then.
func (z *freezer) holding(ctx context.Context, m *fleet.Member) (lost int64, err error) {
	since := history.Now()
	err = fleet.Poll(ctx, servedWithin, "a process to hold a lock", func(context.Context) (bool, error) {
		s := m.Process.Status()
		lost = s.Lost
		return s.At > since && s.Holding > 0, nil
	})
	return lost, err
}
