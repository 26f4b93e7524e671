package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A fleet is the instances.
type fleet struct {
	mu        sync.Mutex // protects instances, and killed of each
	instances []*process
}

func (f *fleet) start(ctx context.Context, d *database, events chan<- event) error {
	for i, skew := range skews {
		p, err := startProcess(ctx, i+1, skew, d, events)
		if err != nil {
			return fmt.Errorf("instance %d: %w", i+1, err)
		}
		f.mu.Lock()
		f.instances = append(f.instances, p)
		f.mu.Unlock()
	}
	return nil
}

// stop stops the instances; runs in flight come to their end.
func (f *fleet) stop() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.instances { // all at once, then wait
		p.tell()
	}
	for _, p := range f.instances {
		err = errors.Join(err, p.wait())
	}
	return err
}

// killed counts the instances that were.
func (f *fleet) killed() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.instances {
		if p.killed {
			n++
		}
	}
	return n
}

// A killer kills instances in their work.
type killer struct {
	fleet *fleet

	mu   sync.Mutex    // protects what follows
	next string        // the job whose next run is the last of its instance; "" for none
	done chan struct{} // closed when it was
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
	case <-time.After(stopPatience):
		return errors.New("no instance runs the job " + job)
	}
}

// hear is told of each event.
func (k *killer) hear(e event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if e.What != working || e.Job != k.next || !k.fleet.mu.TryLock() { // or the instances are being stopped
		return
	}
	defer k.fleet.mu.Unlock()
	if p := k.fleet.instances[e.Instance-1]; !p.killed && p.kill() == nil {
		k.next = ""
		close(k.done)
	}
}
