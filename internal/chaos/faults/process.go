package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// atOnce is how soon the keys of a process that has ended are free, where no lease
// has to pass.
const atOnce = time.Second

// kill waits until the victim's keys are free, where that takes a lease, and were
// asked for. The next fault must not hide that.
func kill(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return nil, err // m lives
	}
	pid, err := f.SessionPID(ctx, m)
	if err != nil {
		return nil, err
	}
	f.begin()
	if err := f.Kill(m); err != nil {
		return m, err
	}
	if f.Store.Leased() {
		err = f.Released(ctx, pid, f.Lease+atOnce+f.Busy)
	}
	return m, errors.Join(asViolation(err), worker.Pause(ctx, atOnce))
}

// freeze freezes a process, and checks that it was silent meanwhile.
func freeze(length func(*Injector) time.Duration) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m, err := f.holding(ctx)
		if err != nil {
			return m, err
		}
		d, frozen, last := length(f), history.Moment(0), history.Moment(0)
		err = f.during(ctx, d, func() error {
			defer func() { frozen = history.Now() }()
			return m.Process.Freeze()
		}, func() error {
			last = m.Process.Status().At
			return m.Process.Thaw()
		})
		if err == nil && last > frozen+history.Moment(d)/2 {
			err = fmt.Errorf("process %d told its status %v after it was frozen", m.Process.Config.Process, time.Duration(last-frozen))
		}
		return m, err
	}
}

// rollingRestart ends each process in turn, and starts another in its place. No
// process loses anything by that.
func rollingRestart(ctx context.Context, f *Injector) (*fleet.Member, error) {
	for _, i := range f.Rand.Perm(len(f.Members)) {
		m := f.Members[i]
		before, err := f.statuses(ctx)
		if err != nil {
			return nil, err
		}
		pid, err := f.SessionPID(ctx, m)
		if err != nil {
			return nil, err
		}
		old := m.Process
		if err := f.Restart(ctx, m); err != nil {
			return nil, asViolation(err)
		}
		if err := errors.Join(f.Released(ctx, pid, atOnce+f.Busy), f.Serving(ctx, RecoverWithin+f.Busy)); err != nil {
			return nil, asViolation(err)
		}
		after, err := f.statuses(ctx)
		if err != nil {
			return nil, err
		}
		after[i] = status{old.Config.Process, old.Status()}
		if _, err := NothingLost.check(before, after, nil); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
