package ratelimit

import (
	"errors"
	"sync"
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

// holds learns how long the locks of one limiter are held, which is how long a
// rejected client should wait. That is the larger of two means:
//
//   - The mean length of ended holds, in which the latest counts for an eighth
//     (the smoothing of RFC 6298). It follows a service that becomes slower or
//     faster.
//   - The mean age of the locks that are held now. It rises at once when
//     everything hangs and nothing ends.
//
// Invariant: open is the number of locks that have begun and not ended, and
// starts is the sum of their start times.
type holds struct {
	mu     sync.Mutex // protects the fields below; never held while calling out
	mean   time.Duration
	ended  bool          // a hold has ended, and mean is set
	open   int           // locks held now
	starts time.Duration // sum of their start times; it may wrap, the sum of ages does not
}

// origin is the zero of start times, so that they can be added.
var origin = time.Now()

func now() time.Duration { return time.Since(origin) }

func (h *holds) begin(start time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open++
	h.starts += start
}

func (h *holds) end(start, held time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open--
	h.starts -= start
	if !h.ended {
		h.mean, h.ended = held, true
		return
	}
	h.mean += (held - h.mean) / 8
}

// learnt returns the learnt time at the moment at.
func (h *holds) learnt(at time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	d := h.mean
	if h.open > 0 {
		ages := time.Duration(h.open)*at - h.starts
		d = max(d, ages/time.Duration(h.open))
	}
	return min(max(d, minRetryAfter), maxRetryAfter)
}

// begin begins the hold of lock, which was acquired at start. It sets the timer
// of WithMaxHold, and the hook for the end of the lock.
func (l *Limiter) begin(lock *sqllock.Lock, start time.Duration) {
	l.holds.begin(start)
	var timer *time.Timer
	if l.maxHold > 0 && !l.dryRun {
		timer = time.AfterFunc(l.maxHold, func() { lock.Cancel(ErrMaxHold) })
	}
	lock.OnEnd(func(cause error) {
		if timer != nil {
			timer.Stop()
		}
		held := now() - start
		l.holds.end(start, held)
		if errors.Is(cause, sqllock.ErrReleased) {
			l.observer.released(held)
		} else {
			l.observer.lost(held)
		}
	})
}

// retry returns how long a rejected client should wait.
func (l *Limiter) retry() time.Duration {
	d := l.holds.learnt(now())
	if l.retryAfter != nil {
		d = l.retryAfter(d)
	}
	if d <= 0 {
		return minRetryAfter
	}
	return d
}
