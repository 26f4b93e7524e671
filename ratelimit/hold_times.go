package ratelimit

import (
	"time"
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

// A holdTimes learns how long the locks of one limiter are held, which is how
// long a rejected client should wait. That is the larger of two means:
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

// retry returns how long a rejected client should wait.
func (l *Limiter) retry() time.Duration {
	l.holds.mu.Lock()
	d := l.holds.times.learnt(now())
	l.holds.mu.Unlock()
	if l.retryAfter != nil {
		d = l.retryAfter(d)
	}
	if d <= 0 {
		return minRetryAfter
	}
	return d
}
