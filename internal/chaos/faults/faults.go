// Package faults injects faults into a fleet at work. Each kind of fault is a
// row of one table, with the guarantees that hold meanwhile.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/check"
	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// ErrViolated is matched by errors that report that a guarantee of the kit did
// not hold. Any other error of Inject is an accident of the campaign, such as a
// server that did not start.
var ErrViolated = check.NewTimedRule("a fault had an effect that it may not have")

// violation makes an error that matches ErrViolated.
func violation(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrViolated}, args...)...)
}

// asViolation turns the error of waiting for something guaranteed into one that
// matches ErrViolated, if it did not come. An error of looking for it stays as
// it is.
func asViolation(err error) error {
	if errors.Is(err, fleet.ErrTimeout) || errors.Is(err, fleet.ErrDrain) {
		return violation("%w", err)
	}
	return err
}

// An Injector injects faults into its fleet, one at a time.
type Injector struct {
	*fleet.Fleet
	Rand *rand.Rand
	Busy time.Duration // is added to each bound on time

	began history.Moment // the fault under way
}

// begin sets the beginning of the fault to now.
func (f *Injector) begin() { f.began = history.Now() }

// An Outcome is a fault that was injected and mended.
type Outcome struct {
	Fault    history.Fault
	Lost     int64         // locks that were reported lost, all processes together
	Recovery time.Duration // until every process served again, after it was mended
	Unmade   string        // why it could not be made, although nothing was violated
}

// RecoverWithin bounds Outcome.Recovery. An attempt to connect that hangs is
// given up after 5 s, and then there is a pause.
const RecoverWithin = 20 * time.Second

// Inject makes a fault of row r, mends it, and waits until every process serves
// again. The error matches a check.Rule if a guarantee did not hold.
func (f *Injector) Inject(ctx context.Context, r Row) (outcome Outcome, err error) {
	before, err := f.statuses(ctx)
	if err != nil {
		return outcome, err
	}
	f.begin()
	victim, err := r.inject(ctx, f)
	outcome.Fault = history.Fault{Row: r.Number, Name: r.Name, Begin: f.began, End: history.Now(), Unmade: err != nil}
	if victim != nil {
		outcome.Fault.Process = before[victim.Number-1].process
	}
	if err != nil {
		return outcome, fmt.Errorf("row %d, %s: %w", r.Number, r.Name, err)
	}
	if err := f.Serving(ctx, RecoverWithin+f.Busy); err != nil {
		return outcome, fmt.Errorf("row %d, %s: not served again: %w", r.Number, r.Name, asViolation(err))
	}
	outcome.Recovery = time.Duration(history.Now() - outcome.Fault.End)
	outcome.Lost, err = f.effect(ctx, before, victim, r.On[f.Store].Effect)
	if err != nil {
		return outcome, fmt.Errorf("row %d, %s: %w", r.Number, r.Name, err)
	}
	return outcome, nil
}

// effect waits until a fault has had its effect: processes may serve before they
// notice it, since callers of one session hand locks to each other. A lease
// bounds that; the check of the history has narrower bounds.
func (f *Injector) effect(ctx context.Context, before []status, victim *fleet.Member, e Effect) (lost int64, err error) {
	for end := time.Now().Add(f.Lease + f.Busy); ; {
		after, failed := f.statuses(ctx)
		if failed != nil {
			return lost, failed
		}
		if lost, err = e.check(before, after, victim); err == nil || time.Now().After(end) {
			return lost, err
		}
	}
}

// A status is what a process has told.
type status struct {
	process int
	worker.Status
}

func (f *Injector) statuses(ctx context.Context) ([]status, error) {
	all := make([]status, len(f.Members))
	for i, m := range f.Members {
		s, err := f.Status(ctx, m)
		if err != nil {
			return nil, err
		}
		all[i] = status{m.Process.Config.Process, s}
	}
	return all, nil
}

// check compares the losses before and after a fault. victim is nil if that is the
// server, or every member.
func (e Effect) check(before, after []status, victim *fleet.Member) (lost int64, err error) {
	for i, b := range before {
		a := after[i]
		if a.process != b.process { // another process: it has lost nothing of its own
			continue
		}
		lost += a.Lost - b.Lost
		connections := a.Connections - b.Connections
		isVictim := victim != nil && victim.Number == i+1
		spared := e == NothingLost || (e == VictimLoses || e == VictimAtMost) && !isVictim
		switch {
		case spared && (connections > 0 || a.Lost > b.Lost):
			err = errors.Join(err, violation("process %d reports %d connections and %d locks lost, and none should be", a.process, connections, a.Lost-b.Lost))
		case connections == 0 && (e == AllLose || (e == VictimLoses || e == VictimAtLeast) && isVictim):
			err = errors.Join(err, violation("process %d has not noticed", a.process))
		}
	}
	return lost, err
}

// member returns a random member.
func (f *Injector) member() *fleet.Member { return f.Members[f.Rand.IntN(len(f.Members))] }

// holding returns a random member that holds a lock, by its last status, and
// begins the fault.
func (f *Injector) holding(ctx context.Context) (*fleet.Member, error) {
	m := f.member()
	err := fleet.Poll(ctx, 10*time.Second, "a process to hold a lock", func(context.Context) (bool, error) {
		return m.Process.Status().Holding > 0, nil
	})
	f.begin()
	return m, err
}

// between returns a random duration between two parts of whole.
func (f *Injector) between(from, to float64, whole time.Duration) time.Duration {
	return time.Duration((from + f.Rand.Float64()*(to-from)) * float64(whole))
}

// during makes a fault, waits for d and mends it.
func (f *Injector) during(ctx context.Context, d time.Duration, begin, mend func() error) error {
	if err := begin(); err != nil {
		return err
	}
	return errors.Join(worker.Pause(ctx, d), mend())
}

// validFor returns T(1−ρ) − m: how long locks outlive the last statement that
// was answered.
func (f *Injector) validFor() time.Duration { return f.Lease - f.Lease/1000 - f.Lease/5 }

// briefly is a time for which a process may be cut off at any moment without a
// loss. It stays well below the bound T(1−ρ) − m − p, since the scheduler of a
// busy machine takes time too.
func (f *Injector) briefly() time.Duration { return f.between(0.1, 0.6, f.validFor()-f.Lease/5) }

// long is a time in which a lease passes.
func (f *Injector) long() time.Duration { return f.between(1.1, 1.6, f.Lease) }
