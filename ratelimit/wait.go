package ratelimit

import (
	"context"
	"errors"
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
)

// enterLine takes one of the places for waiting requests, if one is free.
func (l *Limiter) enterLine() bool {
	if l.waiters.Add(1) > l.maxWaiters {
		l.waiters.Add(-1)
		return false
	}
	return true
}

func (l *Limiter) leaveLine() { l.waiters.Add(-1) }

// wait waits for p, which is full, if its level allows that. Then s has the lock
// of p and no other.
func (s *stack) wait(ctx context.Context, p *place) error {
	l := p.l
	left := l.maxWait - p.waited
	if left <= 0 || l.dryRun || !l.enterLine() {
		return l.busy()
	}
	defer l.leaveLine()
	if !s.waits {
		s.waits = true
		waiting.Begin(ctx)
	}
	began := time.Now()
	defer func() { p.waited += max(time.Since(began), 1) }()
	bounded, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	var err error
	p.lock, err = l.lockSlot(bounded, p.slots)
	return l.waitError(ctx, bounded, err)
}

// lockSlot waits for a slot until ctx ends.
func (l *Limiter) lockSlot(ctx context.Context, s slotSet) (*sqllock.Lock, error) {
	switch {
	case s.all == nil:
		return l.locks.Lock(ctx, s.first)
	case l.any != nil:
		return l.any.LockAny(ctx, s.all...)
	}
	return l.poll(ctx, s)
}

// waitError returns what err, of a wait, means to the caller, whose context is
// ctx. bounded is the context of the wait, and the caller must not see its
// error.
func (l *Limiter) waitError(ctx, bounded context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil && !errors.Is(err, ctx.Err()): // ctx ended just after bounded
		return l.explain(ctx.Err())
	case ctx.Err() != nil || bounded.Err() == nil || !errors.Is(err, bounded.Err()):
		return l.explain(err)
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrConfig), errors.Is(err, sqllock.ErrCapacity):
		return l.explain(overdue{err})
	default:
		return l.busy()
	}
}

// overdue is the error of a wait that reached maxWait while the database was
// away, or had no room for another lock. It does not match the error of that
// deadline, which would look like the caller's.
type overdue struct{ err error }

func (o overdue) Error() string { return o.err.Error() }

func (o overdue) Is(target error) bool {
	return target != context.DeadlineExceeded && errors.Is(o.err, target)
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
