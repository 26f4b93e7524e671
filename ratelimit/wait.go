package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The pause between two attempts at the slots of a Locker that cannot wait for
// several keys, or that is away. It doubles from pollMin to pollMax. A random
// part, up to a half, is subtracted.
const (
	pollMin = 2 * time.Millisecond
	pollMax = 50 * time.Millisecond
)

// wait waits for p, which is full, if its level allows that. Then s has all its
// places, or next is the place that was full instead, or that err is about.
func (s *stack) wait(ctx context.Context, p *place) (next *place, err error) {
	l := p.l
	left := l.maxWait - p.waited
	if left <= 0 || l.dryRun {
		return nil, p.busy()
	}
	w := p.enterLine(s.flow(), s.last != nil && s.last != p)
	if w == nil {
		return nil, p.busy()
	}
	defer func() { w.leave(p.lock != nil) }()
	if s.last == nil {
		waiting.Begin(ctx)
	}
	s.last = p
	began := time.Now()
	defer func() { p.waited += max(time.Since(began), 1) }()
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	return s.takeTurns(ctx, bounded, w)
}

// flow returns what the places for waiting belong to.
func (s *stack) flow() flow {
	if len(s.places) == 1 {
		return flow{}
	}
	return flow{stack: true, number: s.places[0].number}
}

// takeTurns waits for the place of w until bounded ends. When it is the turn of s
// and it has got a slot, s tries for its other places.
func (s *stack) takeTurns(ctx, bounded context.Context, w *waiter) (next *place, err error) {
	p, l := w.p, w.p.l
	var away error
	awayAt, pause, checked := p, pollMin, time.Now()
	for bounded.Err() == nil {
		until := l.maxWait // look at the limit again
		if l.limitOf != nil {
			if w.takeChanged() || time.Since(checked) >= recheck {
				if err := w.updateLimit(ctx); err != nil {
					return nil, l.explain(err)
				}
				checked = time.Now()
			}
			until = time.Until(checked.Add(recheck))
		}
		now := w.turnNow()
		if now == noTurn {
			w.sleep(bounded, until)
			continue
		}
		full := p
		err := w.lockSlot(bounded, now, until)
		if err == nil {
			full, err = s.tryOthers(bounded, p)
		}
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, sqllock.ErrHeld) && full != p:
			return full, nil
		case errors.Is(err, sqllock.ErrHeld):
			away = nil
		case isEnd(err) && !isAway(err):
			away = nil
		case isEnd(err), errors.Is(err, sqllock.ErrUnavailable):
			away, awayAt = overdue{err}, full
			w.sleep(bounded, min(pause-rand.N(pause/2), until)) //nolint:gosec // so that processes do not come together
			pause = min(2*pause, pollMax)
		default:
			return full, full.l.explain(err)
		}
	}
	if away != nil {
		return awayAt, awayAt.waitError(ctx, bounded, fmt.Errorf("%w: %w", away, bounded.Err()))
	}
	return nil, p.waitError(ctx, bounded, bounded.Err())
}

// tryOthers tries for all places, with the slot of p that s has. If another place
// is full, it tries once more without that slot: two requests that each have what
// the other one needs must not go on like that.
func (s *stack) tryOthers(ctx context.Context, p *place) (full *place, err error) {
	failed, err := s.try(ctx)
	if errors.Is(err, sqllock.ErrHeld) {
		full = failed[0]
		failed, err = s.try(ctx)
	}
	switch {
	case err == nil:
		return nil, nil
	case full == nil || failed[0] != p:
		full = failed[0]
	}
	return full, err
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

// lockSlot waits in the Locker for a slot of the place of w, until it has another
// turn, or its limit is due to be looked at again after d.
func (w *waiter) lockSlot(bounded context.Context, now turn, d time.Duration) (err error) {
	p, l := w.p, w.p.l
	slots := p.slots
	if now == reservedOnly {
		slots = slots.ofClass()
	}
	if l.limitOf != nil {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(bounded, d)
		defer cancel()
	}
	w.atLocker(bounded, now, func(ctx context.Context) {
		switch {
		case slots.all == nil:
			p.lock, err = l.locks.Lock(ctx, slots.first)
		case l.any != nil:
			p.lock, err = l.any.LockAny(ctx, slots.all...)
		default:
			p.lock, err = l.poll(ctx, slots)
		}
	})
	return err
}

// waitError returns what err, of a wait, means to the caller, whose context is
// ctx. bounded is the context of the wait, and the caller must not see its
// error.
func (p *place) waitError(ctx, bounded context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()): // ctx ended just after bounded
		return p.l.explain(ctx.Err())
	case ctx.Err() != nil || bounded.Err() == nil || !errors.Is(err, bounded.Err()):
		return p.l.explain(err)
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrConfig), errors.Is(err, sqllock.ErrCapacity):
		return p.l.explain(overdue{err})
	default:
		return p.busy()
	}
}

// overdue is the error of a wait that reached maxWait while the database was
// away, or had no room for another lock. It does not match the error with which
// the wait ended, which would look like the caller's.
type overdue struct{ err error }

func (o overdue) Error() string { return o.err.Error() }

func (o overdue) Is(target error) bool {
	return target != context.DeadlineExceeded && target != context.Canceled && errors.Is(o.err, target)
}

// poll tries the slots again and again. Like [sqllock.Session.Lock] it goes on
// while the database is away.
func (l *Limiter) poll(ctx context.Context, s slotSet) (*sqllock.Lock, error) {
	var away error
	for pause := pollMin; ; pause = min(2*pause, pollMax) {
		timer := time.NewTimer(pause - rand.N(pause/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(away, ctx.Err())
		}
		lock, err := l.try(ctx, s)
		switch {
		case err == nil:
			return lock, nil
		case errors.Is(err, sqllock.ErrHeld):
			away = nil
		case ctx.Err() == nil && errors.Is(err, sqllock.ErrUnavailable):
			away = err
		case errors.Is(err, ctx.Err()):
			return nil, errors.Join(away, err)
		default:
			return nil, err
		}
	}
}
