package ratelimit

import (
	"cmp"
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

	one      [1]sqllock.Key // memory for slots, so that a single one needs no allocation
	slots    []sqllock.Key  // those that the request may take: of its class first, then the common ones
	reserved int            // so many at the beginning of slots are reserved for its class
	want     []sqllock.Key  // those of slots that it tries now: the reserved ones before the others
	rest     []sqllock.Key  // those that it tries if none of want is free

	lock    *sqllock.Lock // nil: it is missing, or the level admits without one
	instead Result        // how the level admits without a lock: DryRun, FailedOpen; "": it does not
	err     error         // of a level that admits without a lock: why
	waited  time.Duration // on this level, in total
}

// find finds what the request may take.
func (p *place) find(ctx context.Context) error {
	if err := p.l.checkID(p.id); err != nil {
		return err
	}
	if err := cmp.Or(p.classify(ctx), p.findLimit(ctx)); err != nil {
		return p.l.explain(err)
	}
	p.choose()
	return nil
}

// choose sets the slots that the request may take.
func (p *place) choose() {
	all := p.one[:]
	if p.l.most == 1 {
		all[0] = p.l.slotKey(p.id, 0)
	} else {
		all = p.l.slotsOf(p.id)
	}
	p.number = all[0].Int64()
	p.slots, p.reserved = p.ofClass(all)
}

// wants sets the slots that the request tries, which are the first of p.slots.
// A locker may take any of those that it gets in one call. So the reserved ones
// are tried before the common ones, which other classes need.
func (p *place) wants(slots []sqllock.Key) {
	p.want, p.rest = slots, nil
	if n := p.reserved; n > 0 && n < len(slots) {
		p.want, p.rest = slots[:n:n], slots[n:]
	}
}

// widen has the request try the other slots. It reports whether there are any.
func (p *place) widen() bool {
	p.want, p.rest = p.rest, nil
	return len(p.want) > 0
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

// reject completes a request that err has kept from its place. It returns nil in
// a dry run.
func (p *place) reject(ctx context.Context, err error) error {
	isBusy := errors.Is(err, ErrBusy)
	result := Failed
	switch {
	case p.l.dryRun:
		p.record(ctx, DryRun, err)
		return nil
	case isBusy && p.waited == 0:
		result = Busy
	case isBusy:
		result = WaitTimeout
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		result = Canceled
	}
	p.record(ctx, result, err)
	return err
}

// record tells the Observers of the decision about p, and counts it.
func (p *place) record(ctx context.Context, result Result, err error) {
	p.tell(ctx, result, err)
	p.l.holds.count(result)
}

// tell tells the Observers of the decision about p.
func (p *place) tell(ctx context.Context, result Result, err error) {
	if p.l.tell(ctx, Event{Limit: p.limit, Result: result, Waited: p.waited, Err: err}); p.waited > 0 {
		p.l.queued.Observe(int64(p.waited))
	}
}
