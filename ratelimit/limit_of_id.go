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
// limit is called for each request, in its goroutine. While a request waits, it
// is called again once the request is the first in line: every 100 ms, and when
// it had another result for another request of the id in this process. So a
// limit may change while requests run:
//
//   - A higher one admits requests that wait.
//   - A lower one ends no request. Those that run on places above it do not
//     count: until they end, at most the old limit runs.
//
// All instances should come to the same limit. Otherwise each request is
// admitted by the limit that its own instance knows.
//
// A result of zero or less is [ErrPolicy]: to reject all requests of an id is
// the task of an authorization in front. If limit panics, the caller of Acquire
// gets the panic. If it blocks, its own request waits, and no other. limit must
// be safe for concurrent use. The ctx is that of the request.
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

const (
	// recheck is how long a request whose turn it is goes by one result of
	// WithLimit.
	recheck = 100 * time.Millisecond

	// slow is how long the func of WithLimit may take before the turn goes on to
	// the next request.
	slow = time.Millisecond
)

// updateLimit calls the func of WithLimit again. While it blocks, others go
// first.
func (w *waiter) updateLimit(ctx context.Context) error {
	w.update(func() { w.calling, w.changed, w.checked = true, false, time.Now() })
	passes := time.AfterFunc(slow, func() {
		w.update(func() { w.absent = w.calling })
	})
	defer func() {
		passes.Stop()
		w.update(func() { w.calling, w.absent = false, false })
	}()
	err := w.p.findLimit(ctx)
	w.update(w.p.choose)
	return err
}

// tellLimit has the requests whose turn it is look at their limit, if a new
// request of the id has another one than the last.
func (ls *lines) tellLimit(number int64, limit int) {
	if ls.waiting.Load() == 0 {
		return
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ln := ls.m[number]
	if ln == nil || ln.limit == limit {
		return
	}
	ln.limit = limit
	for _, w := range ln.queue {
		if w.may > 0 {
			w.changed = true
			w.look()
		}
	}
}
