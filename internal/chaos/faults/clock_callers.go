package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/worker"
	"github.com/latchkey-go/latchkey/sqllock"
)

// work has the near clients take a few keys, hold them, write under them and
// give them back, until stop is called. One client is busy. The other has only
// heartbeats for most of the time.
func (s *stepped) work(ctx context.Context) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	var callers sync.WaitGroup
	errs := make([]error, 3)
	for i := range errs {
		near := min(i, len(s.near)-1)
		c := caller{s: s, client: s.near[near], process: farProcess + 1 + near}
		c.rng = rand.New(rand.NewPCG(s.f.Rand.Uint64(), s.f.Rand.Uint64()))
		c.longest = 20 * time.Millisecond
		if near == 0 {
			c.longest = 3 * s.f.Lease / 2
		}
		callers.Go(func() { errs[i] = c.run(ctx) })
	}
	return func() error {
		cancel()
		callers.Wait()
		return errors.Join(errs...)
	}
}

// A caller works for a near client.
type caller struct {
	s       *stepped
	client  *client
	process int
	longest time.Duration // for which it keeps a lock
	rng     *rand.Rand
}

// run works until ctx ends, or until something happens that may not.
func (c *caller) run(ctx context.Context) error {
	for ctx.Err() == nil {
		lock, err := c.client.TryLock(ctx, sqllock.Namespace("clock").Key(strconv.Itoa(c.rng.IntN(3))))
		switch {
		case ctx.Err() != nil && err != nil, // whatever it was
			errors.Is(err, sqllock.ErrHeld), errors.Is(err, sqllock.ErrUnavailable):
			_ = worker.Pause(ctx, 5*time.Millisecond)
		case err != nil:
			return fmt.Errorf("a caller beside the step: %w", err)
		default:
			k := c.s.log.record(c.process, lock)
			err := c.use(ctx, k)
			k.end(ctx)
			if err != nil {
				return fmt.Errorf("a write beside the step: %w", err)
			}
		}
	}
	return nil
}

// use holds a lock for a while, and writes under some locks.
func (c *caller) use(ctx context.Context, k *loggedLock) error {
	if k.Look() && c.rng.IntN(4) == 0 {
		// It must not end with ctx: its result would be unknown.
		err := c.s.data.writeLogged(context.WithoutCancel(ctx), k)
		if err != nil && !errors.As(err, new(refusal)) {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.rng.Int64N(int64(c.longest))))
	defer cancel()
	k.hold(ctx)
	return nil
}
