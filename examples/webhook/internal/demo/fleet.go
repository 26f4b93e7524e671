package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"
)

const fleetSize = 2

// A fleet is the receivers. Each is started again when it dies, as a supervisor
// would do it.
type fleet struct {
	config Config // of each receiver
	out    io.Writer

	stopping context.Context
	stopNow  context.CancelFunc
	watching sync.WaitGroup

	mu        sync.Mutex          // protects what follows
	receivers [fleetSize]*process // nil: it is being started again
	crashes   map[string]bool     // the points at which receivers have killed themselves
	failed    error
}

// startFleet starts the receivers. The n-th has crashes[n].
func startFleet(ctx context.Context, c Config, out io.Writer, crashes [fleetSize]crash) (*fleet, error) {
	f := &fleet{config: c, out: out, crashes: make(map[string]bool)}
	f.stopping, f.stopNow = context.WithCancel(ctx)
	for n, c := range crashes {
		p, err := f.start(c)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receiver %d: %w", n+1, err), f.stop())
		}
		f.set(n, p)
		f.watching.Go(func() { f.watch(n, p) })
	}
	return f, nil
}

func (f *fleet) start(c crash) (*process, error) {
	return startProcess(f.stopping, &Receiver{Config: f.config, Crash: c})
}

func (f *fleet) set(n int, p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.receivers[n] = p
}

// watch starts receiver n again whenever it has died, until the fleet is stopped.
func (f *fleet) watch(n int, p *process) {
	for {
		f.follow(n, p)
		for p = nil; p == nil; {
			if f.stopping.Err() != nil {
				return
			}
			var err error
			if p, err = f.start(crash{}); err != nil {
				p = nil
				f.pause()
			}
		}
		f.set(n, p)
	}
}

// follow returns when p has ended.
func (f *fleet) follow(n int, p *process) {
	stop := context.AfterFunc(f.stopping, p.Ask)
	defer stop()
	for l := range p.lines {
		f.mu.Lock()
		f.crashes[l.Crash] = true
		f.mu.Unlock()
		_, _ = fmt.Fprintf(f.out, "receiver %d kills itself %s\n", n+1, l.Crash)
	}
	err := p.stop()
	f.set(n, nil)
	f.mu.Lock()
	f.failed = errors.Join(f.failed, err)
	f.mu.Unlock()
}

// pause is the pause of a supervisor before it tries again.
func (f *fleet) pause() {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-f.stopping.Done():
	}
}

// address returns where receiver n serves, or where another one does if n is dead.
// It returns "" if all are dead.
func (f *fleet) address(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.receivers {
		if p := f.receivers[(n+i)%fleetSize]; p != nil {
			return p.address
		}
	}
	return ""
}

// crashed returns the points at which receivers have killed themselves.
func (f *fleet) crashed() map[string]bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.crashes)
}

// stop stops all receivers.
func (f *fleet) stop() error {
	f.stopNow()
	f.watching.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed
}

// crashPlan makes the first receiver crash between COMMIT and response, and the
// second in the middle of an effect, early on.
func crashPlan(events int) [fleetSize]crash {
	n := max(1, events/10)
	return [fleetSize]crash{{AfterCommit, n}, {BeforeCommit, n}}
}
