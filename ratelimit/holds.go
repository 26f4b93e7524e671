package ratelimit

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/histogram"
	"github.com/latchkey-go/latchkey/sqllock"
)

// holds are the locks of one Limiter that are held now, its counts, and what it
// has learnt. It knows ids only by the numbers that the database sees, and only
// while they are held.
//
// Invariants:
//
//   - open has the holds of each id that has one.
//   - counts[Admitted] is the sum of the open holds, counts[Released] and
//     counts[Lost].
type holds struct {
	mu     sync.Mutex // protects the fields below; never held while calling out
	open   map[int64]idHolds
	counts map[Result]uint64
	mean   time.Duration // of the holds that have ended; the latest counts for an eighth (the smoothing of RFC 6298)

	lengths *histogram.Histogram // of holds that have ended
}

// idHolds are the open holds of one id.
type idHolds struct {
	starts   []time.Time // rising
	limit    int         // of the id at its last admission
	rejected int         // requests, since the last of the holds began
}

func newHolds() *holds {
	hs := &holds{open: make(map[int64]idHolds), counts: make(map[Result]uint64), lengths: histogram.New(histogram.Seconds)}
	for _, result := range []Result{Admitted, Busy, WaitTimeout, Canceled, FailedOpen, DryRun, Failed, Released, Lost} {
		hs.counts[result] = 0
	}
	return hs
}

// count counts a decision other than Admitted.
func (hs *holds) count(result Result) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.counts[result]++
}

// begin begins the hold of the lock of p. It sets the timer of WithMaxHold, and
// the hook for the end of the lock.
func (l *Limiter) begin(ctx context.Context, p *place) {
	id, limit, lock := p.number, p.limit, p.lock // not p, which would be on the heap
	start := l.holds.add(id, limit)
	var timer *time.Timer
	if l.maxHold > 0 && !l.dryRun {
		timer = time.AfterFunc(l.maxHold, func() { lock.Cancel(ErrMaxHold) })
	}
	lock.OnEnd(func(cause error) {
		if timer != nil {
			timer.Stop()
		}
		e := Event{Limit: limit, Result: Released, Held: time.Since(start)}
		if !errors.Is(cause, sqllock.ErrReleased) {
			e.Result, e.Err = Lost, cause
		}
		l.holds.remove(id, start, e)
		l.tell(ctx, e)
	})
}

// add adds a hold of id, which begins now, and returns its start.
func (hs *holds) add(id int64, limit int) (start time.Time) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	start = time.Now()
	hs.counts[Admitted]++
	hs.open[id] = idHolds{starts: append(hs.open[id].starts, start), limit: limit}
	return start
}

// remove removes a hold of id, which has ended with e.
func (hs *holds) remove(id int64, start time.Time, e Event) {
	hs.lengths.Observe(int64(e.Held))
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.counts[Released]+hs.counts[Lost] == 0 {
		hs.mean = e.Held
	}
	hs.mean += (e.Held - hs.mean) / 8
	hs.counts[e.Result]++
	of := hs.open[id]
	i := slices.Index(of.starts, start)
	if of.starts = slices.Delete(of.starts, i, i+1); len(of.starts) == 0 {
		delete(hs.open, id)
		return
	}
	hs.open[id] = of
}

// describe adds to s what the holds are now.
func (hs *holds) describe(s *Stats) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	s.Requests = maps.Clone(hs.counts)
	for _, of := range hs.open {
		s.Active += len(of.starts)
		if len(of.starts) >= of.limit { // or more: a limit may be lowered
			s.AtLimit++
		}
		s.Oldest = max(s.Oldest, time.Since(of.starts[0]), 1)
	}
}
