package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// wait waits for p, which is full, if its level allows that. Then s has all its
// places. Otherwise failed is the place that err concerns. ErrHeld is that of
// another one, which is full now.
func (s *stack) wait(ctx context.Context, p *place) (failed *place, err error) {
	l := p.l
	left := l.maxWait - p.waited
	if left <= 0 || l.dryRun {
		return p, p.busy()
	}
	of := flow(0)
	if len(s.places) > 1 {
		of = flow(s.places[0].number)
	}
	w := l.lines.enter(p, of)
	if w == nil {
		return p, p.busy()
	}
	defer func() { w.leave(p.lock != nil) }()
	began := time.Now()
	defer func() { p.waited += max(time.Since(began), 1) }()
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if !s.hasWaited && s.waits != nil {
		w.update(func() { w.absent = true }) // the middleware may read a slow client's body
		s.waits(bounded)
		w.update(func() { w.absent = false })
		if errors.Is(bounded.Err(), context.DeadlineExceeded) && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return p, p.busy() // a body that is cut off ends ctx, as if the client had left
		}
	}
	s.hasWaited = true
	return s.takeTurns(ctx, bounded, w)
}

// takeTurns waits for the place of w until bounded ends. When it is the turn of s
// and it has got a slot, s tries for its other places.
func (s *stack) takeTurns(ctx, bounded context.Context, w *waiter) (failed *place, err error) {
	p, pause := w.p, pollMin
	away, awayAt := error(nil), p
	for bounded.Err() == nil {
		step, may, stale := w.next(bounded)
		switch {
		case may == 0:
			<-step.Done()
			continue
		case stale:
			if err := w.updateLimit(ctx); err != nil {
				return p, p.l.explain(err)
			}
			continue
		case !p.l.canWait(p.slots[:may]) && !pause.wait(step):
			continue
		}
		failed = p
		if p.lock, err = p.l.wait(step, p.slots[:may]); err == nil {
			failed, err = s.try(bounded)
		}
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, sqllock.ErrHeld) && failed != p:
			return failed, err
		case errors.Is(err, sqllock.ErrUnavailable), isEnd(err) && isAway(err):
			away, awayAt = overdue{err}, failed
			pause.wait(step)
		case errors.Is(err, sqllock.ErrHeld), isEnd(err):
			away, awayAt = nil, p
		default:
			return failed, failed.l.explain(err)
		}
	}
	return awayAt, awayAt.waitError(ctx, away)
}

// A backoff is the pause between two attempts at the slots of a Locker that
// cannot wait for several keys, or that is away. It doubles from pollMin to
// pollMax.
type backoff time.Duration

const (
	pollMin = backoff(2 * time.Millisecond)
	pollMax = backoff(50 * time.Millisecond)
)

// wait pauses, less a random part of up to a half, so that processes do not come
// together. It reports false if ctx ends first.
func (b *backoff) wait(ctx context.Context) bool {
	pause := time.Duration(*b - rand.N(*b/2)) //nolint:gosec // no secret
	*b = min(2**b, pollMax)
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}

// isEnd reports whether err is of a context that has ended.
func isEnd(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// isAway reports whether err, of a wait, says more than that it has ended.
func isAway(err error) bool {
	return errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrConfig) ||
		errors.Is(err, sqllock.ErrCapacity) || errors.Is(err, sqllock.ErrNotExclusive)
}

// waitError returns the error of a wait that has ended, for a caller with this
// ctx. away is why the database has granted nothing; nil: it was busy.
func (p *place) waitError(ctx context.Context, away error) error {
	switch err := ctx.Err(); {
	case err != nil && away != nil:
		return p.l.explain(fmt.Errorf("%w: %w", away, err))
	case err != nil:
		return p.l.explain(err)
	case away != nil:
		return p.l.explain(away)
	}
	return p.busy()
}

// overdue is the error of a wait while the database was away, or had no room for
// another lock. It does not match the error with which the wait ended, which
// would look like the caller's.
type overdue struct{ err error }

func (o overdue) Error() string { return o.err.Error() }

func (o overdue) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(o.err, target)
}
