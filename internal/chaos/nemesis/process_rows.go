package nemesis

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/starve"
)

// processRows are what happens to processes.
var processRows = []Row{
	{Number: 1, Name: "kill -9", Quick: true, Effect: Any, inject: kill},
	{Number: 2, Name: "frozen longer than the lease", Effect: VictimLoses, inject: freezeLong},
	{Number: 3, Name: "frozen for a moment", Quick: true, Effect: NothingLost, inject: freezeShort},
	{Number: 23, Name: "10,000 cancelled callers", Quick: true, Effect: NothingLost, inject: cancelled},
	{Number: 27, Name: "processor starved", Effect: Any, inject: starved},
	{Number: 30, Name: "SIGTERM, one after the other", Quick: true, Effect: Any, inject: rollingRestart},
}

func kill(ctx context.Context, f *Field) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	f.strike()
	return m, f.Kill(m)
}

func freezeLong(ctx context.Context, f *Field) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	return m, f.freeze(ctx, m, f.between(1.1, 1.8, f.Lease))
}

// freezeShort stays clear of the bound: the scheduler of a busy machine counts, too.
func freezeShort(ctx context.Context, f *Field) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	return m, f.freeze(ctx, m, f.between(0.1, 0.75, f.bearable()))
}

func (f *Field) freeze(ctx context.Context, m *fleet.Member, d time.Duration) error {
	f.strike()
	if err := m.Process.Freeze(); err != nil {
		return err
	}
	return errors.Join(last(ctx, d), m.Process.Thaw())
}

func cancelled(ctx context.Context, f *Field) (*fleet.Member, error) {
	const calls = 10_000
	m := f.member(nil)
	before := m.Process.Status().Flooded
	if err := m.Process.Flood(calls); err != nil {
		return m, err
	}
	err := fleet.Poll(ctx, time.Minute, "cancelled calls to return", func(context.Context) (bool, error) {
		return m.Process.Status().Flooded == before+calls, nil
	})
	if err != nil {
		return m, err
	}
	return m, f.NoStrangeLocks(ctx, 5*time.Second)
}

func starved(ctx context.Context, f *Field) (*fleet.Member, error) {
	stop, err := starve.Start(4 * runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	return nil, errors.Join(last(ctx, f.between(0.5, 1.5, f.Lease)), stop())
}

func rollingRestart(ctx context.Context, f *Field) (*fleet.Member, error) {
	for _, i := range f.Rand.Perm(len(f.Members)) {
		if err := f.Restart(ctx, f.Members[i]); err != nil {
			return nil, err
		}
		if err := f.Serving(ctx, recoverWithin); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
