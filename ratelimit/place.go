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
	number int64  // of the id's first slot, which stands for the id
	limit  int    // how many requests of the id are admitted at a time
	class  *Class // nil: the request has none
	slots  slots  // those that the request may take: of its class first, then the common ones
	want   slots  // those of them that it tries now: the reserved ones before the others
	rest   slots  // those that it tries if none of want is free

	lock    *sqllock.Lock // nil: it is missing, or the level admits without one
	instead Result        // how the level admits without a lock: DryRun, FailedOpen; "": it does not
	err     error         // of a level that admits without a lock: why
	waited  time.Duration // on this level, in total
}

// newPlace returns the place that a request for id wants of l.
func (l *Limiter) newPlace(ctx context.Context, id string) (p place, err error) {
	p = place{l: l, id: id, limit: l.most}
	if err = l.checkID(id); err != nil {
		return p, err
	}
	if err = p.classify(ctx); err == nil {
		err = p.findLimit(ctx)
	}
	if err != nil {
		return p, l.explain(err)
	}
	p.choose()
	return p, nil
}

// choose sets the slots that the request may take.
func (p *place) choose() {
	all := p.l.slotsOf(p.id)
	p.number = all.first.Int64()
	if p.l.limitOf != nil {
		p.l.holds.limitIs(p.number, p.limit)
	}
	p.slots = p.ofClass(all)
}

// wants sets the slots that the request tries, which are the first of p.slots.
// A locker may take any of those that it gets in one call. So the reserved ones
// are tried before the common ones, which other classes need.
func (p *place) wants(s slots) {
	p.want, p.rest = s, slots{}
	if n := s.reserved; n > 0 && n < s.n() {
		p.want, p.rest = s.upTo(n), slots{first: s.all[n], all: s.all[n:]}
	}
}

// widen has the request try the other slots. It reports whether there are any.
func (p *place) widen() bool {
	p.want, p.rest = p.rest, slots{}
	return p.want.n() > 0
}

// missing reports whether the request still needs a lock of p.
func (p *place) missing() bool { return p.lock == nil && p.instead == "" }

// pass reports whether the level admits without a lock a request that err has
// kept from it. From then on the place is not missing.
func (p *place) pass(ctx context.Context, err error) bool {
	switch {
	case p.l.dryRun:
		p.instead, p.err = DryRun, err
	case p.l.failOpen && ctx.Err() == nil && errors.Is(err, sqllock.ErrUnavailable):
		p.instead, p.err = FailedOpen, err
	default:
		return false
	}
	return true
}
