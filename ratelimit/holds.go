package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A hold is a lock of a Limiter, from its admission to its end. It is memory
// that later holds use again.
//
// Invariant: it has no id. It knows its id by the number that the database
// sees, and only as long as it is open.
type hold struct {
	limiter *Limiter
	ctx     context.Context // of the Acquire
	start   time.Duration
	id      int64       // the number of the id's first slot
	limit   int         // of the id, at the admission
	timer   *time.Timer // of WithMaxHold; nil: none
	end     func(cause error)
}

// holds are the locks of one Limiter that are held now, and what it has learnt
// of them.
//
// Invariants:
//
//   - open has the holds of each id that has one, by its number.
//   - ends[Admitted] is the sum of the open holds, ends[Released] and
//     ends[Lost].
type holds struct {
	mu    sync.Mutex // protects the fields below; never held while calling out
	times holdTimes
	open  map[int64]idHolds
	ends  map[Result]uint64

	lengths *histogram.Histogram // of holds that have ended
	unused  sync.Pool            // of *hold
}

// idHolds are the open holds of one id.
type idHolds struct {
	starts   []time.Duration // rising
	limit    int             // of the id, as far as is known
	rejected int             // requests, since the last of the holds began
}

// begin begins the hold of the lock of p. It sets the timer of WithMaxHold, and
// the hook for the end of the lock.
func (l *Limiter) begin(ctx context.Context, p *place) {
	lock := p.lock
	h, ok := l.holds.unused.Get().(*hold)
	if !ok {
		h = &hold{limiter: l}
		h.end = h.ended
	}
	h.ctx, h.id, h.limit = ctx, p.number, p.limit
	if l.maxHold > 0 && !l.dryRun {
		h.timer = time.AfterFunc(l.maxHold, func() { lock.Cancel(ErrMaxHold) })
	}
	l.holds.add(h)
	lock.OnEnd(h.end)
}

// ended ends h, whose lock has ended with cause.
func (h *hold) ended(cause error) {
	l, ctx := h.limiter, h.ctx
	if h.timer != nil {
		h.timer.Stop()
	}
	e := Event{Limit: h.limit, Result: Released, Held: now() - h.start}
	if !errors.Is(cause, sqllock.ErrReleased) {
		e.Result, e.Err = Lost, cause
	}
	l.holds.remove(h, e)
	h.ctx, h.timer = nil, nil
	l.holds.unused.Put(h)
	l.record(ctx, e)
}

// add adds h, which begins now.
func (hs *holds) add(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.start = now()
	hs.times.begin(h.start)
	hs.ends[Admitted]++
	hs.open[h.id] = idHolds{starts: append(hs.open[h.id].starts, h.start), limit: h.limit}
}

// remove removes h, which has ended with e.
func (hs *holds) remove(h *hold, e Event) {
	hs.lengths.Observe(int64(e.Held))
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.times.end(h.start, e.Held)
	hs.ends[e.Result]++
	of := hs.open[h.id]
	i := slices.Index(of.starts, h.start)
	if of.starts = slices.Delete(of.starts, i, i+1); len(of.starts) == 0 {
		delete(hs.open, h.id)
	} else {
		hs.open[h.id] = of
	}
}

// limitIs notes the limit of an id, which may have changed since its last
// admission.
func (hs *holds) limitIs(id int64, limit int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if of, ok := hs.open[id]; ok {
		of.limit = limit
		hs.open[id] = of
	}
}

// describe adds to s what the holds are now.
func (hs *holds) describe(s *Stats) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, result := range []Result{Admitted, Released, Lost} {
		s.Requests[result] = hs.ends[result]
	}
	s.Active = hs.times.open
	for _, of := range hs.open {
		if len(of.starts) >= of.limit { // or more: a limit may be lowered
			s.AtLimit++
		}
		s.Oldest = max(s.Oldest, now()-of.starts[0], 1)
	}
}
