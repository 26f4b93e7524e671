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
// several keys. It doubles from pollMin to pollMax. A random part, up to a
// half, is subtracted.
const (
	pollMin = 2 * time.Millisecond
	pollMax = 50 * time.Millisecond

	pollMaxInTurn = 48 * time.Millisecond
)

// wait waits for p, which is full, if its level allows that. Then s has the lock
// of p, or of all its places. Or next is the place that was full instead, or that
// err is about.
func (s *stack) wait(ctx context.Context, p *place) (next *place, err error) {
	l, flow := p.l, s.flow()
	left := l.maxWait - p.waited
	if left <= 0 || l.dryRun || !p.enterLine(flow, s.last != nil && s.last != p) {
		return nil, p.busy()
	}
	served := false
	defer func() { p.leaveLine(flow, served) }()
	if s.last == nil {
		waiting.Begin(ctx)
	}
	s.last = p
	began := time.Now()
	defer func() { p.waited += max(time.Since(began), 1) }()
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if len(s.places) > 1 || l.limitOf != nil {
		next, err = s.takeTurns(ctx, bounded, p)
	} else {
		p.lock, err = p.lockSlot(bounded)
		err = p.waitError(ctx, bounded, err)
	}
	served = p.lock != nil
	return next, err
}

// flow returns what the places for waiting belong to.
func (s *stack) flow() flow {
	if len(s.places) == 1 {
		return flow{}
	}
	return flow{stack: true, number: s.places[0].number}
}

// takeTurns waits for p until bounded ends. When it is the turn of s and a slot
// of p is free, s tries for all its places.
func (s *stack) takeTurns(ctx, bounded context.Context, p *place) (next *place, err error) {
	l, w := p.l, p.enterQueue()
	defer w.leaveQueue()
	var away error
	var awayAt *place              // whose Locker is away
	checked, over := time.Now(), 0 // over: attempts since a slot was free, but no place
	for bounded.Err() == nil {
		if l.limitOf != nil && (w.takeChanged() || time.Since(checked) >= recheck) {
			if err := w.updateLimit(ctx); err != nil {
				return nil, l.explain(err)
			}
			checked, over = time.Now(), 0
		}
		next := l.maxWait // look at the limit again
		if l.limitOf != nil {
			next = time.Until(checked.Add(recheck))
		}
		switch {
		case !w.isFirst():
			w.sleep(bounded, next)
			continue
		case over > 0:
			if w.sleep(bounded, min(pollPause(over), next)) {
				over = 1
				continue
			}
		default:
			err := w.ring(bounded, checked)
			switch {
			case err == nil:
			case isAway(err):
				away, awayAt = overdue{err}, p
				over++
				continue
			case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
				away = nil
				continue
			default:
				return nil, l.explain(err)
			}
		}
		full, err := s.tryInTurn(bounded, p)
		switch {
		case err == nil:
			return nil, nil
		case errors.Is(err, sqllock.ErrHeld) && full != p:
			return full, nil
		case errors.Is(err, sqllock.ErrHeld):
			away = nil
			over++
			if len(p.beyond) == 0 {
				over = 0
			}
		case errors.Is(err, sqllock.ErrUnavailable):
			away, awayAt = overdue{err}, full
			over++
		case bounded.Err() != nil:
		default:
			return nil, full.l.explain(err)
		}
	}
	if away != nil {
		return awayAt, awayAt.waitError(ctx, bounded, fmt.Errorf("%w: %w", away, bounded.Err()))
	}
	return nil, p.waitError(ctx, bounded, bounded.Err())
}

// ring waits for a slot of the place of w, until it is no longer its turn.
func (w *waiter) ring(bounded context.Context, checked time.Time) (err error) {
	p := w.p
	if p.l.limitOf != nil {
		var cancel context.CancelFunc
		bounded, cancel = context.WithDeadline(bounded, checked.Add(recheck))
		defer cancel()
	}
	w.atTheBell(bounded, func(ctx context.Context) { p.lock, err = p.lockSlot(ctx) })
	return err
}

// tryInTurn tries for all places, with the slot of p that s may have. If another
// place is full, it tries once more without that slot: two requests that each
// have what the other one needs must not go on like that.
func (s *stack) tryInTurn(ctx context.Context, p *place) (full *place, err error) {
	if p.lock != nil && len(p.beyond) > 0 { // a slot is not a place yet
		s.giveBack()
	}
	had := p.lock != nil
	failed, err := s.try(ctx)
	if had && errors.Is(err, sqllock.ErrHeld) {
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

// isAway reports whether err, of a wait, says more than that it has ended.
func isAway(err error) bool {
	return errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, sqllock.ErrConfig) ||
		errors.Is(err, sqllock.ErrCapacity) || errors.Is(err, sqllock.ErrNotExclusive)
}

// pollPause returns how long to wait before the nth attempt at a place beyond a
// limit that was lowered.
func pollPause(n int) time.Duration {
	pause := min(pollMin<<min(n-1, 10), pollMaxInTurn)
	return pause - rand.N(pause/2)
}

// lockSlot waits in the line of the Locker for a slot, until ctx ends.
func (p *place) lockSlot(ctx context.Context) (*sqllock.Lock, error) {
	ctx, done := withTerms(ctx, waiting.Terms{Rank: p.ticket.rank(p.priority())})
	defer done()
	switch {
	case p.slots.all == nil:
		return p.l.locks.Lock(ctx, p.slots.first)
	case p.l.any != nil:
		return p.l.any.LockAny(ctx, p.slots.all...)
	}
	return p.l.poll(ctx, p.slots)
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
