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

// holds are the locks of one Limiter that are held now, and what it has learnt
// of them. It knows ids only by the numbers that the database sees, and only
// while they are held.
//
// Invariants:
//
//   - open has the holds of each id that has one.
//   - ends[Admitted] is the sum of the open holds, ends[Released] and
//     ends[Lost].
//   - starts is the sum of the start times of the open holds. It may wrap. The
//     sum of their ages does not.
type holds struct {
	mu     sync.Mutex // protects the fields below; never held while calling out
	open   map[int64]idHolds
	ends   map[Result]uint64
	starts time.Duration
	mean   time.Duration     // of the holds that have ended; the latest counts for an eighth (the smoothing of RFC 6298)
	spare  [][]time.Duration // memory for idHolds

	lengths *histogram.Histogram // of holds that have ended
}

// idHolds are the open holds of one id.
type idHolds struct {
	starts   []time.Duration // rising
	limit    int             // of the id, as far as is known
	rejected int             // requests, since the last of the holds began
}

// origin is the zero of start times, so that they can be added.
var origin = time.Now()

func now() time.Duration { return time.Since(origin) }

// begin begins the hold of the lock of p. It sets the timer of WithMaxHold, and
// the hook for the end of the lock.
func (l *Limiter) begin(ctx context.Context, p *place) {
	id, limit := p.number, p.limit // not p, which would be on the heap
	start, timer := l.holds.add(id, limit), l.endAfterMaxHold(p.lock)
	p.lock.OnEnd(func(cause error) {
		if timer != nil {
			timer.Stop()
		}
		e := Event{Limit: limit, Result: Released, Held: now() - start}
		if !errors.Is(cause, sqllock.ErrReleased) {
			e.Result, e.Err = Lost, cause
		}
		l.holds.remove(id, start, e)
		l.record(ctx, e)
	})
}

// endAfterMaxHold returns the timer of WithMaxHold, or nil.
func (l *Limiter) endAfterMaxHold(lock *sqllock.Lock) *time.Timer {
	if l.maxHold == 0 || l.dryRun {
		return nil
	}
	return time.AfterFunc(l.maxHold, func() { lock.Cancel(ErrMaxHold) })
}

// add adds a hold of id, which begins now, and returns its start.
func (hs *holds) add(id int64, limit int) (start time.Duration) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	start = now()
	hs.starts += start
	hs.ends[Admitted]++
	of := hs.open[id]
	if n := len(hs.spare); of.starts == nil && n > 0 {
		of.starts, hs.spare = hs.spare[n-1], hs.spare[:n-1]
	}
	hs.open[id] = idHolds{starts: append(of.starts, start), limit: limit}
	return start
}

// remove removes a hold of id, which has ended with e.
func (hs *holds) remove(id int64, start time.Duration, e Event) {
	hs.lengths.Observe(int64(e.Held))
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.ends[Released]+hs.ends[Lost] == 0 {
		hs.mean = e.Held
	}
	hs.mean += (e.Held - hs.mean) / 8
	hs.starts -= start
	hs.ends[e.Result]++
	of := hs.open[id]
	i := slices.Index(of.starts, start)
	of.starts = slices.Delete(of.starts, i, i+1)
	if hs.open[id] = of; len(of.starts) == 0 {
		delete(hs.open, id)
		hs.spare = append(hs.spare, of.starts)
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

// active returns how many holds are open. hs.mu is held.
func (hs *holds) active() int {
	return int(hs.ends[Admitted] - hs.ends[Released] - hs.ends[Lost])
}

// describe adds to s what the holds are now.
func (hs *holds) describe(s *Stats) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	for _, result := range []Result{Admitted, Released, Lost} {
		s.Requests[result] = hs.ends[result]
	}
	s.Active = hs.active()
	for _, of := range hs.open {
		if len(of.starts) >= of.limit { // or more: a limit may be lowered
			s.AtLimit++
		}
		s.Oldest = max(s.Oldest, now()-of.starts[0], 1)
	}
}
