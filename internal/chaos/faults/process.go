package faults

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// processRows are faults of processes.
var processRows = []Row{
	{Number: 1, Name: "kill -9", Quick: true, Effect: Any, inject: kill},
	{Number: 2, Name: "frozen longer than the lease", Effect: VictimLoses, inject: freezeLong},
	{Number: 3, Name: "frozen for a moment", Quick: true, Effect: NothingLost, inject: freezeShort},
	{Number: 23, Name: "10,000 cancelled callers", Quick: true, Effect: NothingLost, inject: cancelled},
	{Number: 27, Name: "processor starved", Effect: Any, inject: starved},
	{Number: 30, Name: "SIGTERM, one after the other", Quick: true, Effect: Any, inject: rollingRestart},
}

func kill(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return nil, err // m lives
	}
	f.begin()
	return m, f.Kill(m)
}

func freezeLong(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	return m, f.freeze(ctx, m, f.between(1.1, 1.8, f.Lease))
}

// freezeShort stays well below the bound, since the scheduler of a busy machine
// takes time too.
func freezeShort(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	return m, f.freeze(ctx, m, f.between(0.1, 0.75, f.longestPause()))
}

// freeze freezes m's process for d, and checks that it was silent meanwhile.
func (f *Injector) freeze(ctx context.Context, m *fleet.Member, d time.Duration) error {
	f.begin()
	if err := m.Process.Freeze(); err != nil {
		return err
	}
	frozen := history.Now()
	err := worker.Pause(ctx, d)
	last := m.Process.Status().At
	if err := errors.Join(err, m.Process.Thaw()); err != nil {
		return err
	}
	if last > frozen+history.Moment(d)/2 {
		return fmt.Errorf("process %d told its status %v after it was frozen", m.Process.Config.Process, time.Duration(last-frozen))
	}
	return nil
}

func cancelled(ctx context.Context, f *Injector) (*fleet.Member, error) {
	const calls = 10_000
	m := f.member()
	before := m.Process.Status()
	if err := m.Process.Flood(calls); err != nil {
		return m, err
	}
	err := fleet.Poll(ctx, time.Minute, "cancelled calls to return", func(context.Context) (bool, error) {
		return m.Process.Status().Flooded == before.Flooded+calls, nil
	})
	if err != nil {
		return m, asViolation(err)
	}
	// A tenth is cancelled before it begins; how many of the others are too quick
	// for that depends on the machine.
	if n := m.Process.Status().Cancelled - before.Cancelled; n < calls/20 {
		return m, fmt.Errorf("only %d of %d calls were cancelled", n, calls)
	}
	return m, asViolation(f.NoStrangeLocks(ctx, 5*time.Second))
}

func starved(ctx context.Context, f *Injector) (*fleet.Member, error) {
	stop, err := starve.Start(4 * runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(worker.Pause(ctx, f.between(0.5, 1.5, f.Lease)), stop())
}

func rollingRestart(ctx context.Context, f *Injector) (*fleet.Member, error) {
	for _, i := range f.Rand.Perm(len(f.Members)) {
		if err := f.restart(ctx, f.Members[i]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// atOnce is how soon the keys of a process that ended on SIGTERM are free, before
// a lease would free them.
const atOnce = time.Second

// restart ends m's process and starts another in its place. It checks that no
// process loses anything by that.
func (f *Injector) restart(ctx context.Context, m *fleet.Member) error {
	before, err := f.Tallies(ctx)
	if err != nil {
		return err
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		return err
	}
	old := m.Process
	if err := f.Restart(ctx, m); err != nil {
		return asViolation(err)
	}
	if err := f.Released(ctx, pid, atOnce); err != nil {
		return asViolation(err)
	}
	if err := f.Serving(ctx, recoverWithin); err != nil {
		return asViolation(err)
	}
	after, err := f.Tallies(ctx)
	if err != nil {
		return err
	}
	after[m.Number-1] = fleet.TallyOf(old)
	_, err = NothingLost.check(before, after, 0)
	return err
}
