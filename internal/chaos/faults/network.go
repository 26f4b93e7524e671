package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
	"github.com/latchkey-go/latchkey/internal/chaos/worker"
)

// networkRows are faults between a process and its server.
var networkRows = []Row{
	{Number: 4, Name: "nothing comes from the server", Effect: VictimLoses, inject: swallow(proxy.ToClient)},
	{Number: 5, Name: "nothing reaches the server", Effect: VictimLoses, inject: swallow(proxy.ToServer)},
	{Number: 6, Name: "link down for a moment", Quick: true, Effect: NothingLost, inject: linkDown},
	{Number: 7, Name: "half-open connection", Effect: VictimLoses, inject: halfOpen},
	{Number: 8, Name: "connection reset", Quick: true, Effect: VictimLoses, inject: reset},
	{Number: 9, Name: "slow network", Effect: Any, inject: slow},
	{Number: 10, Name: "byte by byte", Effect: Any, inject: trickle},
	{Number: 11, Name: "reply to an acquire lost", Quick: true, Effect: VictimLoses, inject: loseReply(proxy.Acquire)},
	{Number: 12, Name: "reply to a release lost", Quick: true, Effect: VictimLoses, inject: loseReply(proxy.Release)},
}

func swallow(d proxy.Direction) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m, err := f.holding(ctx)
		if err != nil {
			return m, err
		}
		f.begin()
		fault, err := m.Proxy.Swallow(d)
		return m, f.mendAfter(ctx, f.between(1.05, 1.6, f.Lease), fault, err)
	}
}

// mendAfter ends a fault, unless it could not be made, after d.
func (f *Injector) mendAfter(ctx context.Context, d time.Duration, fault *proxy.Fault, err error) error {
	if err != nil {
		return err
	}
	return errors.Join(worker.Pause(ctx, d), fault.Mend())
}

// slowed is mendAfter for a fault that makes m's network slower. Another client
// in that network must have waited for at least least, or until the fault was
// mended.
func (f *Injector) slowed(ctx context.Context, m *fleet.Member, d, least time.Duration, fault *proxy.Fault, err error) error {
	if err != nil {
		return err
	}
	var took time.Duration
	felt := make(chan error, 1)
	go func() {
		var err error
		took, err = f.RoundTrip(ctx, m)
		felt <- err
	}()
	err = f.mendAfter(ctx, d, fault, nil)
	if err := errors.Join(err, <-felt); err != nil {
		return err
	}
	if took < min(d, least) {
		return fmt.Errorf("the network should have been slow, and a round trip took %v", took)
	}
	return nil
}

// linkDown stays clear of the bound, as freezeShort does.
func linkDown(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.holding(ctx)
	if err != nil {
		return m, err
	}
	d := f.between(0.1, 0.75, f.longestPause())
	f.begin()
	fault, err := m.Proxy.Hold()
	return m, f.slowed(ctx, m, d, d, fault, err)
}

func halfOpen(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	return m, f.noticed(ctx, m, m.Proxy.HalfOpen)
}

func reset(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m, err := f.abrupt()
	if err != nil {
		return nil, err
	}
	return m, f.noticed(ctx, m, m.Proxy.Sever)
}

// noticed makes a fault that ends m's connection, and mends it when m has
// noticed. It must notice within a lease.
func (f *Injector) noticed(ctx context.Context, m *fleet.Member, end func() (*proxy.Fault, error)) error {
	before, err := f.Tally(ctx, m, history.Now())
	if err != nil {
		return err
	}
	f.begin()
	fault, err := end()
	if err != nil {
		return err
	}
	err = fleet.Poll(ctx, f.Lease, "a process to notice that its connection has ended", func(context.Context) (bool, error) {
		return m.Process.Status().Connections > before.Connections, nil
	})
	return errors.Join(asViolation(err), fault.Mend())
}

func slow(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	d := f.between(0.2, 3, f.heartbeat())
	fault, err := m.Proxy.Latency(d, d/2)
	// There are at least three answers, and each is late by at least half of d.
	return m, f.slowed(ctx, m, f.between(0.8, 1.6, f.Lease), d, fault, err)
}

func trickle(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	fault, err := m.Proxy.Trickle()
	return m, f.slowed(ctx, m, f.between(0.8, 1.6, f.Lease), 150*time.Millisecond, fault, err)
}

// loseReply's fault begins at the moment at which the reply is lost.
func loseReply(kind proxy.Request) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m := f.member()
		lost := m.Proxy.LoseReply(kind)
		err := fleet.Poll(ctx, 10*time.Second, "a reply to be lost", func(context.Context) (bool, error) {
			select {
			case f.began = <-lost:
				return true, nil
			default:
				return false, nil
			}
		})
		m.Proxy.Spare()
		return m, err
	}
}
