package ratelimit

import (
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The bounds of the learnt time. HTTP's Retry-After cannot say less than a
// second. A client that is told a long time stays away although the key is
// free.
const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
)

// origin is the zero of start times, so that they can be added.
var origin = time.Now()

func now() time.Duration { return time.Since(origin) }

// A holdTimes learns how long the locks of one limiter are held. Where nothing
// is known of the id's own holds, a rejected client should wait for the larger
// of two means:
//
//   - The mean length of ended holds, in which the latest counts for an eighth
//     (the smoothing of RFC 6298). It follows a service that becomes slower or
//     faster.
//   - The mean age of the locks that are held now. It rises at once when
//     everything hangs and nothing ends.
//
// Invariant: open is the number of locks that have begun and not ended, and
// starts is the sum of their start times.
type holdTimes struct {
	mean   time.Duration
	ended  bool          // a hold has ended, and mean is set
	open   int           // locks held now
	starts time.Duration // sum of their start times; it may wrap, the sum of ages does not
}

func (h *holdTimes) begin(start time.Duration) {
	h.open++
	h.starts += start
}

func (h *holdTimes) end(start, held time.Duration) {
	h.open--
	h.starts -= start
	if !h.ended {
		h.mean, h.ended = held, true
		return
	}
	h.mean += (held - h.mean) / 8
}

// learnt returns the learnt time at the moment at.
func (h *holdTimes) learnt(at time.Duration) time.Duration {
	d := h.mean
	if h.open > 0 {
		ages := time.Duration(h.open)*at - h.starts
		d = max(d, ages/time.Duration(h.open))
	}
	return d
}

// left returns how long a hold of this age should still take. A hold that is
// older than the mean is expected to take as long again as it is late. So a
// client of an id that hangs comes back less and less often.
func (h *holdTimes) left(age time.Duration) time.Duration { return (h.mean - age).Abs() }

// A heldForLocker knows how long another process has held a key.
// [*sqllock.Session] is such a Locker.
type heldForLocker interface {
	HeldFor(key sqllock.Key) (age time.Duration, ok bool)
}

// retryAfter returns how long a rejected client should wait.
func (p *place) retryAfter() time.Duration {
	l := p.l
	at := now()
	l.holds.mu.Lock()
	times := l.holds.times
	d, ahead, known := l.holds.rejectLocked(p.number, at)
	l.holds.mu.Unlock()
	if !known {
		ahead = elsewhere()
		d, known = p.leftElsewhere(&times)
	}
	if !known {
		d = times.learnt(at)
	}
	d = clamp(d) + spread(clamp(times.mean), ahead, p.limit)
	if l.retryAfter != nil {
		d = l.retryAfter(d)
	}
	if d <= 0 {
		return minRetryAfter
	}
	return d
}

func clamp(d time.Duration) time.Duration { return min(max(d, minRetryAfter), maxRetryAfter) }

// spread returns a random time, so that clients that were rejected one after
// the other do not return together. ahead of them were rejected before, and will
// have a place for about the time hold each.
func spread(hold time.Duration, ahead, limit int) time.Duration {
	most := min(hold*time.Duration(min(ahead, maxAhead))/time.Duration(limit), maxRetryAfter)
	return rand.N(most + 1) //nolint:gosec // no secret
}

// maxAhead bounds a product. With so many ahead the time is at its bound.
const maxAhead = 1 << 16

// elsewhere returns how many clients seem to be ahead at an id that only other
// processes hold: none, one or two, since it is unknown whom they have rejected.
func elsewhere() int { return rand.IntN(3) } //nolint:gosec // no secret

// rejectLocked counts a rejection of an id. It returns when the first of its
// open holds should end, and how many were rejected before in the last of them.
// It reports false if there is no hold.
func (hs *holds) rejectLocked(id int64, at time.Duration) (left time.Duration, before int, known bool) {
	of, known := hs.open[id]
	if !known {
		return 0, 0, false
	}
	left = hs.times.left(at - of.starts[0])
	for _, start := range of.starts {
		left = min(left, hs.times.left(at-start))
	}
	before = of.rejected
	of.rejected++
	hs.open[id] = of
	return left, before, true
}

// leftElsewhere returns when the first hold of other processes should end, if
// the Locker knows of any.
func (p *place) leftElsewhere(times *holdTimes) (left time.Duration, known bool) {
	if p.l.heldFor == nil {
		return 0, false
	}
	for _, key := range p.slots.keys() {
		age, ok := p.l.heldFor.HeldFor(key)
		if d := times.left(age); ok && (!known || d < left) {
			left, known = d, true
		}
	}
	return left, known
}
