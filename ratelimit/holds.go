package ratelimit

import (
	"context"
	"errors"
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
	limiter    *Limiter
	ctx        context.Context // of the Acquire
	start      time.Duration
	id         int64       // the number of the id's first slot
	limit      int         // of the id, at the admission
	timer      *time.Timer // of WithMaxHold; nil: none
	prev, next *hold       // in order of start
	before     *hold       // of the holds of the id: the one that was added before
	after      *hold       // and the one that was added after
	end        func(cause error)
}

// holds are the locks of one Limiter that are held now, and what it has learnt
// of them.
//
// Invariants:
//
//   - oldest to newest are the open holds in order of start.
//   - perID has the open holds of each id that has one, by its number. full
//     counts the ids with as many as their limit, or more: a limit may be
//     lowered, and a lock that was lost may end after the next has begun.
//   - ends[admitted] is the sum of the open holds, ends[released] and
//     ends[lost].
type holds struct {
	mu             sync.Mutex // protects the fields below; never held while calling out
	times          holdTimes
	oldest, newest *hold
	perID          map[int64]idHolds
	full           int
	ends           [lost + 1]uint64

	lengths *histogram.Histogram // of holds that have ended
	unused  sync.Pool            // of *hold
}

// idHolds are the open holds of one id.
type idHolds struct {
	last  *hold // that was added; the others are before it
	n     int
	limit int // of the id, as far as is known
}

func (h idHolds) full() bool { return h.n >= h.limit }

// begin begins the hold of the lock of p, which was acquired at start. It sets
// the timer of WithMaxHold, and the hook for the end of the lock.
func (l *Limiter) begin(ctx context.Context, p *place, start time.Duration) {
	lock := p.lock
	h, ok := l.holds.unused.Get().(*hold)
	if !ok {
		h = &hold{limiter: l}
		h.end = h.ended
	}
	h.ctx, h.start, h.id, h.limit = ctx, start, p.number, p.limit
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
	e := Event{Limit: h.limit, Held: now() - h.start}
	result := released
	if !errors.Is(cause, sqllock.ErrReleased) {
		result, e.Err = lost, cause
	}
	l.holds.lengths.Observe(int64(e.Held))
	l.holds.remove(h, result, e.Held)
	h.ctx, h.timer = nil, nil
	l.holds.unused.Put(h)
	l.tell(ctx, result, e)
}

// add adds h. Its start may be a moment before that of the newest.
func (hs *holds) add(h *hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.times.begin(h.start)
	hs.ends[admitted]++
	h.prev = hs.newest
	for h.prev != nil && h.prev.start > h.start {
		h.prev = h.prev.prev
	}
	if h.prev == nil {
		h.next, hs.oldest = hs.oldest, h
	} else {
		h.next, h.prev.next = h.prev.next, h
	}
	if h.next == nil {
		hs.newest = h
	} else {
		h.next.prev = h
	}
	if hs.perID == nil {
		hs.perID = make(map[int64]idHolds)
	}
	of := hs.perID[h.id]
	if h.before = of.last; h.before != nil {
		h.before.after = h
	}
	hs.replace(h.id, of, idHolds{h, of.n + 1, h.limit})
}

// remove removes h, which was held for so long and ended with this result.
func (hs *holds) remove(h *hold, result int, held time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.times.end(h.start, held)
	hs.ends[result]++
	if h.prev == nil {
		hs.oldest = h.next
	} else {
		h.prev.next = h.next
	}
	if h.next == nil {
		hs.newest = h.prev
	} else {
		h.next.prev = h.prev
	}
	h.prev, h.next = nil, nil
	of := hs.perID[h.id]
	was := of
	if h.after == nil {
		of.last = h.before
	} else {
		h.after.before = h.before
	}
	if h.before != nil {
		h.before.after = h.after
	}
	h.before, h.after = nil, nil
	of.n--
	hs.replace(h.id, was, of)
}

// replace replaces the open holds of an id.
func (hs *holds) replace(id int64, before, after idHolds) {
	if before.n > 0 && before.full() {
		hs.full--
	}
	if after.n == 0 {
		delete(hs.perID, id)
		return
	}
	if after.full() {
		hs.full++
	}
	hs.perID[id] = after
}

// limitIs notes the limit of an id, which may have changed since its last
// admission.
func (hs *holds) limitIs(id int64, limit int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if of := hs.perID[id]; of.n > 0 && of.limit != limit {
		hs.replace(id, of, idHolds{of.last, of.n, limit})
	}
}

// describe adds to s what the holds are now.
func (hs *holds) describe(s *Stats) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for result, n := range hs.ends {
		s.Requests[results[result]] = n
	}
	s.Active, s.AtLimit = hs.times.open, hs.full
	if hs.oldest != nil {
		s.Oldest = max(now()-hs.oldest.start, 1)
	}
}
