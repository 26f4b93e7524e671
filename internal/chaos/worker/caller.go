package worker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A caller asks for a lock, holds it, gives it back, again and again.
type caller struct {
	w   *work
	rng *rand.Rand
}

func (c *caller) run(draining context.Context) {
	longest := cmp.Or(c.w.config.Pause, 4*time.Millisecond)
	for draining.Err() == nil {
		if lock, number := c.take(); lock != nil {
			c.hold(draining, lock, number)
		}
		_ = Pause(draining, c.upTo(longest))
	}
}

// chance is true n times in a hundred.
func (c *caller) chance(n int) bool { return c.rng.IntN(100) < n }

func (c *caller) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// A request is one call that wants a lock on one of keys.
type request struct {
	keys  []sqllock.Key
	waits bool
	limit time.Duration // of its context; 0: none
}

// choose makes up the next call.
func (c *caller) choose() request {
	n := 1
	if c.chance(15) {
		n = 2 + c.rng.IntN(3)
	}
	a := request{waits: c.chance(25)}
	for _, i := range c.rng.Perm(c.w.config.Keys)[:min(n, c.w.config.Keys)] {
		key := Key(i)
		if c.chance(50) {
			key = sameKey(i)
		}
		a.keys = append(a.keys, key)
	}
	switch {
	case c.chance(10): // gives up early, some before they have begun
		a.limit = time.Nanosecond + c.upTo(3*time.Millisecond)
	case a.waits:
		a.limit = 5*time.Millisecond + c.upTo(300*time.Millisecond)
	}
	return a
}

// take makes up a call, makes it and notes it. Without a grant the lock is nil.
func (c *caller) take() (lock *sqllock.Lock, number int64) { return c.ask(c.choose()) }

// ask makes a call and notes it.
func (c *caller) ask(a request) (lock *sqllock.Lock, number int64) {
	ctx := context.Background()
	if a.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.limit)
		defer cancel()
	}
	begin := history.Now()
	lock, err := c.call(ctx, a)
	end := history.Now()
	c.count(err, begin)
	try := history.Try{Process: c.w.config.Process, Call: c.w.number(), Waits: a.waits, Begin: begin, End: end, Result: ResultOf(err)}
	if a.limit > 0 {
		try.Until = begin + history.Moment(a.limit)
	}
	for _, key := range a.keys { // of a failed call, each was held or none was granted
		of := try
		of.Key = key.Int64()
		switch {
		case err != nil:
		case of.Key == lock.Key().Int64():
			number = c.w.number()
			of.Lock = number
		default: // asked for, and perhaps granted for a moment
			of.Result = history.GaveUp
		}
		c.w.note(history.Event{Try: &of})
	}
	return lock, number
}

func (c *caller) call(ctx context.Context, a request) (*sqllock.Lock, error) {
	s := c.w.session
	switch {
	case len(a.keys) == 1 && a.waits:
		return s.Lock(ctx, a.keys[0])
	case len(a.keys) == 1:
		return s.TryLock(ctx, a.keys[0])
	case a.waits:
		return s.LockAny(ctx, a.keys...)
	default:
		return s.TryAny(ctx, a.keys...)
	}
}

func (c *caller) count(err error, begin history.Moment) {
	counts := &c.w.counts
	switch {
	case err == nil:
		counts.granted.Add(1)
		for last := counts.lastOK.Load(); last < int64(begin) && !counts.lastOK.CompareAndSwap(last, int64(begin)); {
			last = counts.lastOK.Load()
		}
	case ResultOf(err) == history.Held:
		counts.held.Add(1)
	case errors.Is(err, sqllock.ErrNotExclusive):
		counts.notExclusive.Add(1)
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrConfig):
		counts.unavailable.Add(1)
	}
}
