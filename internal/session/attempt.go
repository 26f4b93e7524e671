package session

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/dialect/dbconn"
)

// One attempt to do something with a driver that may hang.

// maxInDriver bounds the goroutines, and so the connections, that a stuck
// driver can cost. Beyond it no attempt is made.
const maxInDriver = 4

// hangs is how long an attempt may take before the server is probed. It also
// bounds a probe.
const hangs = 500 * time.Millisecond

// probePause is the pause between two such probes.
const probePause = 200 * time.Millisecond

// maxBeside is how many attempts may start while one hangs. A server may
// respond quickly to a probe and be slow to connect.
const maxBeside = 2

// attempt calls do, which needs the driver. It returns when caller ends, even
// if the driver is stuck. What the driver brings later is undone.
//
// An attempt may hang though the server is reachable again, because its bytes
// were lost while the network was cut. So another one starts as soon as the
// server responds to a probe, and the first to succeed counts.
func attempt[T any](caller context.Context, sl *slot, do func(context.Context) (T, error), undo func(T)) (brought T, err error) {
	if sl.inDriver.Load() >= maxInDriver {
		return brought, &dialect.Failure{Kind: dialect.Gone, Reason: "earlier attempts to connect are stuck in the driver"}
	}
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer func() {
		if caller.Err() == nil {
			err = InTime(err)
		}
	}()
	timer := time.NewTimer(sl.s.options.bound(dialect.ConnectTimeout))
	defer timer.Stop()
	select {
	case sl.s.connecting <- struct{}{}:
		defer func() { <-sl.s.connecting }()
	case <-timer.C:
		return brought, context.DeadlineExceeded
	case <-ctx.Done():
		return brought, ctx.Err()
	}
	race := &race[T]{ctx: ctx, slot: sl, do: do, undo: undo, outcomes: make(chan outcome[T])}
	race.start()
	return race.first(sl.s.answers(ctx))
}

// A race is several attempts at one thing, of which the first to succeed
// counts.
//
// Invariant: every attempt either delivers its outcome to first, or undoes it.
type race[T any] struct {
	ctx      context.Context // ends with the race
	slot     *slot
	do       func(context.Context) (T, error)
	undo     func(T)
	outcomes chan outcome[T]
	running  int
	giveUp   context.CancelFunc // of the attempt that started last
}

// An outcome is what one attempt has brought.
type outcome[T any] struct {
	brought T
	err     error
}

// start starts an attempt. If the pool has no two connections for it, it
// cancels the one before, which hangs.
func (r *race[T]) start() {
	if stats := r.slot.s.db.Stats(); r.giveUp != nil && stats.MaxOpenConnections > 0 && stats.MaxOpenConnections-stats.InUse < 2 {
		r.giveUp()
	}
	within, cancel := context.WithTimeout(r.ctx, r.slot.s.options.bound(dialect.ConnectTimeout))
	r.giveUp = cancel
	r.running++
	go func() {
		defer cancel()
		brought, err := once(within, r.slot, r.do, r.undo)
		select {
		case r.outcomes <- outcome[T]{brought, err}:
		case <-r.ctx.Done():
			if err == nil {
				r.undo(brought)
			}
		}
	}()
}

// first returns what the first successful attempt has brought. If all have
// failed, it returns the error that says most. answers reports that the server
// responds.
func (r *race[T]) first(answers <-chan struct{}) (none T, err error) {
	for {
		select {
		case <-r.ctx.Done():
			return none, r.ctx.Err()
		case <-answers:
			if r.slot.inDriver.Load() < maxInDriver {
				r.start()
			}
		case o := <-r.outcomes:
			if o.err == nil {
				return o.brought, nil
			}
			if r.running--; err == nil || isContext(err) {
				err = o.err
			}
			if r.running == 0 {
				return none, err
			}
		}
	}
}

// isContext reports whether err is the end of a context, which says less than
// another error.
func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// once calls do, and returns when ctx ends, even if the driver is stuck.
func once[T any](ctx context.Context, sl *slot, do func(context.Context) (T, error), undo func(T)) (brought T, err error) {
	sl.inDriver.Add(1)
	o, inTime := dbconn.Call(ctx, func() (o outcome[T]) {
		o.brought, o.err = do(ctx)
		return o
	}, func(o outcome[T]) {
		defer sl.inDriver.Add(-1)
		if o.err == nil {
			undo(o.brought)
		}
	})
	if !inTime {
		return brought, ctx.Err()
	}
	sl.inDriver.Add(-1)
	return o.brought, o.err
}

// answers reports up to maxBeside times, until ctx ends, that the server of the
// last connection responds. If its address is not known, answers returns nil.
func (s *Session) answers(ctx context.Context) <-chan struct{} {
	s.mu.Lock()
	address := s.address
	prober, ok := s.options.Dialect.(dialect.Prober)
	s.mu.Unlock()
	if !ok || address == nil {
		return nil
	}
	told := make(chan struct{})
	go func() {
		for wait, n := hangs, 0; n < maxBeside && sleep(ctx, wait); {
			within, cancel := context.WithTimeout(ctx, hangs)
			yes := prober.Responds(within, address)
			cancel()
			if wait = probePause; !yes {
				continue
			}
			n++
			wait = 2 * hangs // for the attempt that now starts
			select {
			case told <- struct{}{}:
			case <-ctx.Done():
			}
		}
	}()
	return told
}

// sleep waits for d, and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// InTime returns err of an attempt that has its own time limit. The end of that
// context must not look like the end of a caller's.
func InTime(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return &dialect.Failure{Kind: dialect.Gone, Reason: "no answer within " + dialect.ConnectTimeout.String()}
	}
	return err
}
