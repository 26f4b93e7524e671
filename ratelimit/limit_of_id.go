package ratelimit

import (
	"context"
	"fmt"
	"time"
)

// WithLimit gives each id a limit of its own, which is the result of limit for
// it. More than the number of [AtMost] counts as that number. So let AtMost have
// the highest limit that an id may get.
//
// limit is called for each request, in its goroutine. For the first request in
// line it is called again every 100 ms. So a limit may change while requests
// run:
//
//   - A higher one admits requests that wait.
//   - A lower one ends no request. Those that run on places above it do not
//     count: until they end, at most the old limit runs.
//
// All instances should come to the same limit. Otherwise each request is
// admitted by the limit that its own instance knows.
//
// A result of zero or less is [ErrPolicy]: to reject all requests of an id is
// the task of an authorization in front. limit must be quick and safe for
// concurrent use: while it runs for the first request in line, those behind it
// wait. If it panics, the caller of Acquire gets the panic. The ctx is that of
// the request.
//
// WithLimit panics if limit is nil.
func WithLimit(limit func(ctx context.Context, id string) int) Option {
	if limit == nil {
		panic("ratelimit: WithLimit needs a func that is not nil")
	}
	return func(l *Limiter) { l.limitOf = limit }
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
	p.limit = min(n, p.l.most)
	return nil
}

// recheck is how long a waiting request goes by one result of WithLimit.
const recheck = 100 * time.Millisecond

// updateLimit calls the func of WithLimit again.
func (w *waiter) updateLimit(ctx context.Context) error {
	err := w.p.findLimit(ctx)
	w.update(func() {
		w.p.choose()
		w.checked = time.Now()
	})
	return err
}
