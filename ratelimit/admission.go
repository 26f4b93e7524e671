package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A request gets its lock or not, and the policy decides what follows. Each
// decision is counted and reported once.

// admit begins the hold of the lock of p, which was just acquired. The Observers
// get the admission first, as the lock may have ended already. If one of them
// panics, admit releases the lock, since the caller never gets it. Then nothing
// is counted.
func (l *Limiter) admit(ctx context.Context, p *place) {
	start := now()
	if l.dryRun {
		p.lock.DetachContexts() // no request must end with it
	}
	told := false
	defer func() {
		if !told {
			_ = p.lock.Unlock()
		}
	}()
	l.tell(ctx, admitted, Event{Limit: p.limit, Waited: p.waited})
	l.noteWait(p.waited)
	l.begin(ctx, p, start)
	told = true
}

// reject completes a request that err has kept from its place.
func (p *place) reject(ctx context.Context, err error) error {
	p.count(ctx, p.l.rejection(ctx, err, p.waited), err)
	if p.l.dryRun {
		return nil
	}
	return err
}

// count counts a request that err has kept from its place, with this result.
func (p *place) count(ctx context.Context, result int, err error) {
	p.l.decided[result].Add(1)
	p.l.noteWait(p.waited)
	p.l.tell(ctx, result, Event{Limit: p.limit, Waited: p.waited, Err: err})
}

// rejection returns the result of a request that err has kept from its lock,
// apart from [WithFailOpen].
func (l *Limiter) rejection(ctx context.Context, err error, waited time.Duration) int {
	switch {
	case l.dryRun:
		return dryRun
	case isBusy(err) && waited == 0:
		return busy
	case isBusy(err):
		return waitTimeout
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return canceled
	}
	return failed
}

// isBusy is errors.Is(err, ErrBusy), and faster for the Limiter's own error.
func isBusy(err error) bool {
	if _, own := err.(*BusyError); own { //nolint:errorlint // what wraps one is looked at below
		return true
	}
	return errors.Is(err, ErrBusy)
}

// noteWait counts a request that has waited, with or without success.
func (l *Limiter) noteWait(waited time.Duration) {
	if waited > 0 {
		l.queued.Observe(int64(waited))
	}
}

// explain adds to the error of a locker which limiter it comes from.
func (l *Limiter) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("ratelimit: %s: %w", l.ns, err)
}
