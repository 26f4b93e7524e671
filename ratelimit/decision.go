package ratelimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/inside"
)

// A request gets its lock or not, and the policy decides what follows. Each
// decision is recorded once.

// admit begins the hold of the lock of p, which was just acquired. The Observers
// get the admission first, as the lock may have ended already. If one of them
// panics, admit releases the lock, since the caller never gets it.
func (l *Limiter) admit(ctx context.Context, p *place) {
	if l.dryRun {
		inside.Detach(p.lock) // no request must end with it
	}
	told := false
	defer func() {
		if !told {
			_ = p.lock.Unlock()
		}
	}()
	p.record(ctx, Admitted, nil)
	told = true
	l.begin(ctx, p)
}

// reject completes a request that err has kept from its place. It returns nil in
// a dry run.
func (p *place) reject(ctx context.Context, err error) error {
	isBusy := errors.Is(err, ErrBusy)
	switch {
	case p.l.dryRun:
		p.record(ctx, DryRun, err)
		return nil
	case isBusy && p.waited == 0:
		p.record(ctx, Busy, err)
	case isBusy:
		p.record(ctx, WaitTimeout, err)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		p.record(ctx, Canceled, err)
	default:
		p.record(ctx, Failed, err)
	}
	return err
}

// record records the decision about p.
func (p *place) record(ctx context.Context, result Result, err error) {
	p.l.record(ctx, Event{Limit: p.limit, Result: result, Waited: p.waited, Err: err})
}

// explain adds to the error of a locker which limiter it comes from.
func (l *Limiter) explain(err error) error { return fmt.Errorf("ratelimit: %s: %w", l.ns, err) }
