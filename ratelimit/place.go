package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A place is what a request wants of one level: one of some slots of an id.
//
// Invariant: while lock is not nil the request has this place. Until the
// request is admitted, its goroutine alone gives it back.
type place struct {
	l      *Limiter
	id     string
	number int64   // of the id's first slot, which stands for the id
	limit  int     // how many requests of the id are admitted at a time
	slots  slotSet // those that the request may take
	now    slotSet // those of them that it tries now
	class  *class  // nil: the request has none

	lock    *sqllock.Lock // nil: it is missing, or the level admits without one
	instead int           // how the level admits without a lock: dryRun, failedOpen; 0: it does not
	err     error         // of a level that admits without a lock: why
	waited  time.Duration // on this level, in total
	ticket  ticket
}

// newPlace returns the place that a request for id wants of l.
func (l *Limiter) newPlace(ctx context.Context, id string) (place, error) {
	p := place{l: l, id: id, limit: l.slots}
	if err := l.checkID(id); err != nil {
		return p, err
	}
	if err := p.classify(ctx); err != nil {
		return p, l.explain(err)
	}
	if err := p.findLimit(ctx); err != nil {
		return p, l.explain(err)
	}
	p.choose()
	p.spread()
	return p, nil
}

// choose sets the slots that the request may take: those reserved for its
// class first, then those that are common.
func (p *place) choose() {
	all := p.l.slotKeys(p.id)
	p.number = all.first.Int64()
	if p.l.limitOf != nil {
		p.l.holds.limitIs(p.number, p.limit)
	}
	common, reserved := p.reserved()
	if common == p.l.slots {
		p.slots = all
		return
	}
	chosen := reserved.before(all.keys(), common)
	p.slots = slotSet{first: chosen[0], reserved: reserved[1] - reserved[0]}
	if len(chosen) > 1 {
		p.slots.all = chosen
	}
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
