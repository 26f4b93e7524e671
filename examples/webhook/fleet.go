package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"sync"
	"time"
)

const fleetSize = 2

// A fleet is the receivers, each of which is started again when it dies, as a
// supervisor would.
type fleet struct {
	flags flags
	env   []string
	out   io.Writer

	stopping context.Context
	stopNow  context.CancelFunc
	watching sync.WaitGroup

	mu        sync.Mutex          // protects what follows
	receivers [fleetSize]*process // nil: it is being started again
	crashes   map[string]string   // where it crashed → the event
	failed    error
}

// startFleet starts the receivers; the n-th will crash at crashes[n].
func startFleet(ctx context.Context, f flags, out io.Writer, crashes [fleetSize]string, env ...string) (*fleet, error) {
	fl := &fleet{flags: f, env: env, out: out, crashes: make(map[string]string)}
	fl.stopping, fl.stopNow = context.WithCancel(ctx)
	for n, crash := range crashes {
		p, err := startProcess(fl.stopping, f, append(env, "WEBHOOK_CRASH="+crash)...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("receiver %d: %w", n+1, err), fl.stop())
		}
		fl.set(n, p)
		fl.watching.Go(func() { fl.watch(n, p) })
	}
	return fl, nil
}

func (fl *fleet) set(n int, p *process) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.receivers[n] = p
}

// watch starts receiver n again whenever it has died, until the fleet is stopped.
func (fl *fleet) watch(n int, p *process) {
	for {
		fl.follow(n, p)
		for p = nil; p == nil; {
			if fl.stopping.Err() != nil {
				return
			}
			var err error
			if p, err = startProcess(fl.stopping, fl.flags, append(fl.env, "WEBHOOK_CRASH=")...); err != nil {
				p = nil
				fl.pause()
			}
		}
		fl.set(n, p)
	}
}

// follow returns when p has ended.
func (fl *fleet) follow(n int, p *process) {
	stop := context.AfterFunc(fl.stopping, p.tell)
	defer stop()
	for l := range p.lines {
		fl.mu.Lock()
		fl.crashes[l.Crash] = l.Event
		fl.mu.Unlock()
		_, _ = fmt.Fprintf(fl.out, "receiver %d kills itself %s of an event\n", n+1, l.Crash)
	}
	err := p.wait()
	fl.set(n, nil)
	fl.mu.Lock()
	fl.failed = errors.Join(fl.failed, err)
	fl.mu.Unlock()
}

// pause is a supervisor's before it tries again.
func (fl *fleet) pause() {
	select {
	case <-time.After(200 * time.Millisecond):
	case <-fl.stopping.Done():
	}
}

// address is where receiver n serves, or another one, if n is dead; "" if all are.
func (fl *fleet) address(n int) string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for i := range fl.receivers {
		if p := fl.receivers[(n+i)%fleetSize]; p != nil {
			return p.address
		}
	}
	return ""
}

// crashed is the events at which receivers have crashed, by where.
func (fl *fleet) crashed() map[string]string {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return maps.Clone(fl.crashes)
}

// stop stops all receivers.
func (fl *fleet) stop() error {
	fl.stopNow()
	fl.watching.Wait()
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.failed
}

// crashPlan has the first receiver crash between COMMIT and answer, and the second in
// the middle of an effect, early on.
func crashPlan(events int) [fleetSize]string {
	n := strconv.Itoa(max(1, events/10))
	return [fleetSize]string{afterCommit + ":" + n, beforeCommit + ":" + n}
}
