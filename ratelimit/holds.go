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
	timer      *time.Timer // of WithMaxHold; nil: none
	prev, next *hold       // in order of start
	end        func(cause error)
}

// holds are the locks of one Limiter that are held now, and what it has learnt
// of them.
//
// Invariants:
//
//   - oldest to newest are the open holds in order of start.
//   - perID has the open holds of each id that has one, by its number. full
//     counts the ids with as many as the limit, or more: a lock that was lost
//     may end after the next has begun. With a limit of one perID is nil, and
//     each hold stands for an id.
//   - ends[admitted] is the sum of the open holds, ends[released] and
//     ends[lost].
type holds struct {
	mu             sync.Mutex // protects the fields below; never held while calling out
	times          holdTimes
	oldest, newest *hold
	perID          map[int64]int
	full           int
	ends           [lost + 1]uint64

	lengths *histogram.Histogram // of holds that have ended
	unused  sync.Pool            // of *hold
}

// begin begins the hold of lock, which was acquired at start, by a request
// whose first slot is key. It sets the timer of WithMaxHold, and the hook for
// the end of the lock.
func (l *Limiter) begin(ctx context.Context, lock *sqllock.Lock, key sqllock.Key, start time.Duration) {
	h, ok := l.holds.unused.Get().(*hold)
	if !ok {
		h = &hold{limiter: l}
		h.end = h.ended
	}
	h.ctx, h.start, h.id = ctx, start, key.Int64()
	if l.maxHold > 0 && !l.dryRun {
		h.timer = time.AfterFunc(l.maxHold, func() { lock.Cancel(ErrMaxHold) })
	}
	l.holds.add(h, l.slots)
	lock.OnEnd(h.end)
}

// ended ends h, whose lock has ended with cause.
func (h *hold) ended(cause error) {
	l, ctx := h.limiter, h.ctx
	if h.timer != nil {
		h.timer.Stop()
	}
	e := Event{Held: now() - h.start}
	result := released
	if !errors.Is(cause, sqllock.ErrReleased) {
		result, e.Err = lost, cause
	}
	l.holds.lengths.Observe(int64(e.Held))
	l.holds.remove(h, l.slots, result, e.Held)
	h.ctx, h.timer = nil, nil
	l.holds.unused.Put(h)
	l.tell(ctx, result, e)
}

// add adds h. Its start may be a moment before that of the newest.
func (hs *holds) add(h *hold, limit int) {
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
	if limit == 1 {
		return
	}
	if hs.perID == nil {
		hs.perID = make(map[int64]int)
	}
	if hs.perID[h.id]++; hs.perID[h.id] == limit {
		hs.full++
	}
}

// remove removes h, which was held for so long and ended with this result.
func (hs *holds) remove(h *hold, limit, result int, held time.Duration) {
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
	if limit == 1 {
		return
	}
	switch n := hs.perID[h.id]; {
	case n == limit:
		hs.full--
		fallthrough
	case n > 1:
		hs.perID[h.id] = n - 1
	default:
		delete(hs.perID, h.id)
	}
}

// describe adds to s what the holds are now.
func (hs *holds) describe(s *Stats, limit int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for result, n := range hs.ends {
		s.Requests[results[result]] = n
	}
	s.Active, s.AtLimit = hs.times.open, hs.full
	if limit == 1 {
		s.AtLimit = s.Active
	}
	if hs.oldest != nil {
		s.Oldest = max(now()-hs.oldest.start, 1)
	}
}
