package ratelimit

import (
	"context"
	"fmt"
)

// WithLimit gives each id a limit of its own, which is the result of limit for
// it. More than the number of [AtMost] counts as that number. So let AtMost have
// the highest limit that an id may get.
//
// limit is called for each request, in its goroutine. While the request waits,
// limit is called again: every 100 ms, and when it had another result for
// another request of the id in this process. So a limit may change while
// requests run:
//
//   - A higher one admits requests that wait.
//   - A lower one ends none of those that run. Places above it that are still
//     held do not count: until they end, at most as many requests run as the old
//     limit allows.
//
// All instances should come to the same limit. Otherwise each request is
// admitted by the limit that its own instance knows.
//
// A result of zero or less is [ErrPolicy]: to reject all requests of an id is
// the task of an authorization in front. If limit panics, the caller of Acquire
// gets the panic. If it blocks, its own request waits, and no other. limit must
// be safe for concurrent use. The ctx is that of the request.
//
// WithLimit panics if limit is nil. OneAtATime and AtMost panic if the Locker
// has no TryEach. [sqllock.Session] and [sqllock.Memory] have it.
func WithLimit(limit func(ctx context.Context, id string) int) Option {
	if limit == nil {
		panic("ratelimit: WithLimit needs a func that is not nil")
	}
	return func(l *Limiter) {
		if l.each == nil {
			panic("ratelimit: WithLimit needs a Locker with TryEach, such as a *sqllock.Session or *sqllock.Memory")
		}
		l.limitOf = limit
	}
}

var errNoLimit = fmt.Errorf("%w: the func of WithLimit returned a limit of zero or less; "+
	"return at least 1, and reject requests that may never run before they get here", ErrPolicy)

// findLimit sets the limit of the id of p.
func (p *place) findLimit(ctx context.Context) error {
	if p.l.limitOf == nil {
		return nil
	}
	n := p.l.limitOf(ctx, p.id)
	if n <= 0 {
		return errNoLimit
	}
	p.limit = min(n, p.l.slots)
	return nil
}
