// Package faults injects faults into a fleet at work. Each kind of fault is a
// row of the project's fault table, with the guarantees that hold meanwhile.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
)

// A Row is one kind of fault. Its number is that of the fault table and never
// changes.
type Row struct {
	Number int
	Name   string
	Quick  bool // it takes less than the lease, about
	Effect Effect

	// Bystander: the fault happens elsewhere and does nothing to the fleet.
	Bystander bool

	// inject makes the fault and mends it. It returns the victim, or nil if
	// that is the server or every member. The error matches ErrViolated if a
	// guarantee did not hold meanwhile.
	inject func(ctx context.Context, f *Injector) (*fleet.Member, error)
}

// An Effect says which locks a fault may cost.
type Effect int

// The effects.
const (
	Any           Effect = iota // which locks are lost depends on the moment
	NothingLost                 // no process may report a loss
	VictimLoses                 // the victim must find that its connection is lost, and no other may
	VictimAtLeast               // the victim must, and others may
	VictimAtMost                // the victim may, and no other
	AllLose                     // every process must
)

// An Injector injects faults into its fleet, one at a time.
type Injector struct {
	*fleet.Fleet
	Rand *rand.Rand

	began   history.Moment // the fault under way
	outside int            // its Outcome.Outside
}

// begin sets the beginning of the fault to now.
func (f *Injector) begin() { f.began = history.Now() }

// An Outcome is a fault that was injected and mended.
type Outcome struct {
	Fault    history.Fault
	Lost     int64         // locks that were reported lost, all processes together
	Recovery time.Duration // until every process served again, after it was mended
	Outside  int           // overlaps of locks where no guarantee holds: counted, and no violation
	Unmade   error         `json:"-"` // why it could not be made, although nothing was violated
}

// recoverWithin bounds Outcome.Recovery. An attempt to connect that hangs is
// given up after 5 s, and then there is a pause.
const recoverWithin = 20 * time.Second

// Inject makes a fault of row r, mends it, and waits until every process serves
// again. The error matches ErrViolated if a guarantee did not hold.
func (f *Injector) Inject(ctx context.Context, r Row) (outcome Outcome, err error) {
	before, err := f.Tallies(ctx)
	if err != nil {
		return outcome, err
	}
	f.begin()
	f.outside = 0
	victim, err := r.inject(ctx, f)
	outcome.Outside = f.outside
	outcome.Fault = history.Fault{Row: r.Number, Name: r.Name, Begin: f.began, End: history.Now()}
	number := 0 // of the member
	if victim != nil {
		number = victim.Number
		outcome.Fault.Process = before[number-1].Process
	}
	if err != nil {
		return outcome, fmt.Errorf("row %d, %s: %w", r.Number, r.Name, err)
	}
	if err := f.Serving(ctx, recoverWithin); err != nil {
		return outcome, fmt.Errorf("row %d, %s: not served again: %w", r.Number, r.Name, asViolation(err))
	}
	outcome.Recovery = time.Duration(history.Now() - outcome.Fault.End)
	after, err := f.Tallies(ctx)
	if err != nil {
		return outcome, err
	}
	outcome.Lost, err = r.Effect.check(before, after, number)
	if err != nil {
		return outcome, fmt.Errorf("row %d, %s: %w", r.Number, r.Name, err)
	}
	return outcome, nil
}

// check compares the losses before and after a fault. victim is the number of a
// member, or 0.
func (e Effect) check(before, after []fleet.Tally, victim int) (lost int64, err error) {
	for i, b := range before {
		a := after[i]
		if a.Process != b.Process { // another process: it has lost nothing of its own
			continue
		}
		lost += a.Locks - b.Locks
		connections := a.Connections - b.Connections
		spared := e == NothingLost || (e == VictimLoses || e == VictimAtMost) && victim != i+1
		switch {
		case spared && (connections > 0 || a.Locks > b.Locks):
			err = errors.Join(err, violation("process %d reports %d connections and %d locks lost, and none should be", a.Process, connections, a.Locks-b.Locks))
		case connections == 0 && (e == AllLose || (e == VictimLoses || e == VictimAtLeast) && victim == i+1):
			err = errors.Join(err, violation("process %d has not noticed", a.Process))
		}
	}
	return lost, err
}

// member returns a random member.
func (f *Injector) member() *fleet.Member { return f.Members[f.Rand.IntN(len(f.Members))] }

// abrupt returns a random member whose proxy ends connections with RST.
func (f *Injector) abrupt() (*fleet.Member, error) {
	for _, i := range f.Rand.Perm(len(f.Members)) {
		if m := f.Members[i]; m.Abrupt {
			return m, nil
		}
	}
	return nil, errors.New("no member's connections end with RST")
}

// holding returns a member that holds a lock, by its last status.
func (f *Injector) holding(ctx context.Context) (*fleet.Member, error) {
	m := f.member()
	err := fleet.Poll(ctx, 10*time.Second, "a process to hold a lock", func(context.Context) (bool, error) {
		return m.Process.Status().Holding > 0, nil
	})
	return m, err
}

// between returns a random duration between two parts of whole.
func (f *Injector) between(from, to float64, whole time.Duration) time.Duration {
	return time.Duration((from + f.Rand.Float64()*(to-from)) * float64(whole))
}

// validFor returns T(1−ρ) − m: how long locks outlive the last statement that
// was answered.
func (f *Injector) validFor() time.Duration { return f.Lease - f.Lease/1000 - f.Lease/5 }

// longestPause returns T(1−ρ) − m − p: how long a process may be cut off at any
// moment without a loss.
func (f *Injector) longestPause() time.Duration { return f.validFor() - f.heartbeat() }

func (f *Injector) heartbeat() time.Duration { return f.Lease / 5 }
