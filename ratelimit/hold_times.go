package ratelimit

import (
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
	return min(max(d, minRetryAfter), maxRetryAfter)
}

// A heldForLocker knows how long another process has held a key.
// [*sqllock.Session] is such a Locker.
type heldForLocker interface {
	HeldFor(key sqllock.Key) (age time.Duration, ok bool)
}

// left returns how long a hold of this age should still take. A hold that is
// older than the mean is expected to take as long again as it is late. So a
// client of an id that hangs comes back less and less often.
func (h *holdTimes) left(age time.Duration) time.Duration { return (h.mean - age).Abs() }

// retryAfter returns how long a rejected client should wait.
func (p *place) retryAfter() time.Duration {
	l := p.l
	at := now()
	l.holds.mu.Lock()
	times := l.holds.times
	d, known := l.holds.leftLocked(p.number, at)
	l.holds.mu.Unlock()
	if !known && l.heldFor != nil {
		d, known = p.leftElsewhere(&times)
	}
	if !known {
		d = times.learnt(at)
	}
	d = min(max(d, minRetryAfter), maxRetryAfter)
	if l.retryAfter != nil {
		d = l.retryAfter(d)
	}
	if d <= 0 {
		return minRetryAfter
	}
	return d
}

// leftLocked returns when the first of the open holds of an id should end, and
// whether there are any.
func (hs *holds) leftLocked(id int64, at time.Duration) (d time.Duration, known bool) {
	for h := hs.perID[id].last; h != nil; h = h.before {
		if left := hs.times.left(at - h.start); !known || left < d {
			d, known = left, true
		}
	}
	return d, known
}

// leftElsewhere is leftLocked for the holds of other processes.
func (p *place) leftElsewhere(times *holdTimes) (d time.Duration, known bool) {
	for _, key := range p.slots.keys() {
		age, ok := p.l.heldFor.HeldFor(key)
		if !ok {
			continue
		}
		if left := times.left(age); !known || left < d {
			d, known = left, true
		}
	}
	return d, known
}
