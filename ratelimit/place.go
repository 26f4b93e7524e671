package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A place is what a request wants of one level: one of the slots of an id.
//
// Invariant: while lock is not nil the request has this place. Until the
// request is admitted, the one goroutine of the request gives it back.
type place struct {
	l     *Limiter
	slots slotSet
	lock  *sqllock.Lock // nil: it is missing, or the level admits without one

	instead int           // how the level admits without a lock: dryRun, failedOpen; 0: it does not
	err     error         // of a level that admits without a lock: why
	waited  time.Duration // on this level, in total
}

// newPlace returns the place that a request for id wants of l.
func (l *Limiter) newPlace(_ context.Context, id string) (place, error) {
	p := place{l: l}
	if err := l.checkID(id); err != nil {
		return p, err
	}
	p.slots = l.slotKeys(id)
	return p, nil
}

// missing reports whether the request still needs a lock of p.
func (p *place) missing() bool { return p.lock == nil && p.instead == 0 }

// pass reports whether the level admits without a lock a request that err has
// kept from it. From then on the place is not missing.
func (p *place) pass(ctx context.Context, err error) bool {
	switch {
	case p.l.dryRun:
		p.instead, p.err = dryRun, err
	case p.l.failOpen && ctx.Err() == nil && errors.Is(err, sqllock.ErrUnavailable):
		p.instead, p.err = failedOpen, err
	default:
		return false
	}
	return true
}

// giveBack releases the lock of p, if there is one.
func (p *place) giveBack() {
	lock := p.lock
	p.lock = nil
	_ = lock.Unlock()
}
