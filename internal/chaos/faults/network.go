package faults

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/fleet"
	"github.com/latchkey-go/latchkey/internal/chaos/proxy"
)

// cut makes a fault of the network of a holder, which lasts for a while.
func cut(length func(*Injector) time.Duration, begin func(*Injector, *proxy.Proxy) *proxy.Fault) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m, err := f.holding(ctx)
		if err != nil {
			return m, err
		}
		return m, f.mendAfter(ctx, length(f), begin(f, m.Proxy))
	}
}

// mendAfter ends a fault of the network after d.
func (f *Injector) mendAfter(ctx context.Context, d time.Duration, fault *proxy.Fault) error {
	return f.during(ctx, d, func() error { return nil }, func() error { fault.Mend(); return nil })
}

func swallow(d proxy.Direction) func(*Injector, *proxy.Proxy) *proxy.Fault {
	return func(_ *Injector, p *proxy.Proxy) *proxy.Fault { return p.Swallow(d) }
}

func hold(_ *Injector, p *proxy.Proxy) *proxy.Fault { return p.Hold() }

func slow(f *Injector, p *proxy.Proxy) *proxy.Fault {
	d := f.between(0.2, 3, f.Lease/5)
	return p.Latency(d, d/2)
}

// ended makes a fault that ends the connections of a holder, and mends it when its
// process says that it has noticed. It must say so a second after a lease, at the
// latest. The session of a lease table need not notice: there it is mended after a
// moment.
func ended(end func(*proxy.Proxy) *proxy.Fault) func(context.Context, *Injector) (*fleet.Member, error) {
	return func(ctx context.Context, f *Injector) (*fleet.Member, error) {
		m, err := f.holding(ctx)
		if err != nil {
			return m, err
		}
		before, err := f.Status(ctx, m)
		if err != nil {
			return m, err
		}
		f.begin()
		fault := end(m.Proxy)
		if f.Store.Leased() {
			return m, f.mendAfter(ctx, f.between(0.05, 0.3, f.Lease), fault)
		}
		defer fault.Mend()
		noticed := func(context.Context) (bool, error) { return m.Process.Status().Connections > before.Connections, nil }
		return m, asViolation(fleet.Poll(ctx, f.Lease+atOnce+f.Busy, "a process to notice that its connection has ended", noticed))
	}
}

// loseReply's fault begins at the moment at which the reply is lost. A busy
// session acquires and releases in each request.
func loseReply(ctx context.Context, f *Injector) (*fleet.Member, error) {
	m := f.member()
	lost := m.Proxy.LoseReply()
	defer m.Proxy.Spare()
	return m, fleet.Poll(ctx, 10*time.Second, "a reply to be lost", func(context.Context) (bool, error) {
		select {
		case f.began = <-lost:
			return true, nil
		default:
			return false, nil
		}
	})
}
