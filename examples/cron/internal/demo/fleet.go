package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/subprocess"
)

// An event is what an instance reports, as a line of JSON.
type event struct {
	What     what
	Instance int
	Job      string
	Tick     time.Time
	Why      string        `json:",omitempty"` // of rejections and failures
	Took     time.Duration `json:",omitempty"`
	Outlived int           `json:",omitempty"`
}

type what string

const (
	ready    what = "ready"
	began    what = "began"
	working  what = "working" // the run has left its row
	worked   what = "worked"
	ended    what = "ended"
	rejected what = "rejected"
	panicked what = "panicked" // as cron.Recover reports it
	failed   what = "failed"
)

// Why a tick is rejected, in short.
const (
	held   = "held"
	passed = "passed"
)

const (
	startTimeout = 30 * time.Second
	stopTimeout  = 15 * time.Second
)

// An instance is a process of the demonstration, as its parent sees it.
type instance struct {
	*subprocess.Process

	killed bool
	read   chan struct{} // closed when the instance has ended and all its events have been sent
}

// startInstance starts instance n and waits until its schedulers run. Its events
// go to events.
func startInstance(ctx context.Context, o orders, events chan<- event) (*instance, error) {
	p, err := subprocess.Start(role, o)
	if err != nil {
		return nil, err
	}
	i := &instance{Process: p, read: make(chan struct{})}
	works := make(chan struct{})
	go i.follow(works, events)
	timer := time.NewTimer(startTimeout)
	defer timer.Stop()
	select {
	case <-works:
		return i, nil
	case <-i.Ended():
		err = errors.New("it did not start")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = errors.New("it does not respond")
	}
	return nil, errors.Join(err, i.Stop(stopTimeout))
}

// follow passes on the events of i until i ends.
func (i *instance) follow(works chan<- struct{}, events chan<- event) {
	defer close(i.read)
	for lines := json.NewDecoder(i.Stdout); ; {
		var e event
		if lines.Decode(&e) != nil {
			return
		}
		if e.What == ready {
			close(works)
			continue
		}
		events <- e
	}
}

// A fleet is the instances.
type fleet struct {
	mu        sync.Mutex // protects instances, and killed of each
	instances []*instance
}

func (f *fleet) start(ctx context.Context, d *database, events chan<- event) error {
	for n, skew := range skews {
		i, err := startInstance(ctx, orders{Number: n + 1, Demo: d.demo, Skew: skew, URL: d.url}, events)
		if err != nil {
			return fmt.Errorf("instance %d: %w", n+1, err)
		}
		f.mu.Lock()
		f.instances = append(f.instances, i)
		f.mu.Unlock()
	}
	return nil
}

// stop stops the instances. It waits for runs in flight.
func (f *fleet) stop() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.instances { // all at once
		i.Ask()
	}
	for _, i := range f.instances {
		if stopErr := i.Stop(stopTimeout); !i.killed {
			err = errors.Join(err, stopErr)
		}
		<-i.read
	}
	return err
}

// killed counts the instances that were killed.
func (f *fleet) killed() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range f.instances {
		if i.killed {
			n++
		}
	}
	return n
}

// A killer kills instances in the middle of a run.
type killer struct {
	fleet *fleet

	mu   sync.Mutex    // protects what follows
	next string        // the job whose next run is the last of its instance; "" for none
	done chan struct{} // closed when that instance was killed
}

// killNext kills the instance that is next to run job, and waits for that.
func (k *killer) killNext(ctx context.Context, job string) error {
	done := make(chan struct{})
	k.mu.Lock()
	k.next, k.done = job, done
	k.mu.Unlock()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(stopTimeout):
		return errors.New("no instance runs the job " + job)
	}
}

// hear is called with each event.
func (k *killer) hear(e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.What != working || e.Job != k.next || !k.fleet.mu.TryLock() { // or the instances are being stopped
		return
	}
	defer k.fleet.mu.Unlock()
	if i := k.fleet.instances[e.Instance-1]; !i.killed {
		i.killed = true
		if i.Kill() == nil {
			k.next = ""
			close(k.done)
		}
	}
}
