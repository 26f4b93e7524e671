package ratelimit

import (
	"errors"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/sqllock"
)

// The bounds of what is learnt: below a second HTTP's Retry-After cannot say
// it, and a client told to stay away for long does so although the key is free.
const (
	minRetryAfter = time.Second
	maxRetryAfter = time.Minute
)

// holds is how long the locks of one limiter are held: what a client that was
// refused is told to wait.
//
// That is the larger of two means. The first is of ended holds, each counting
// for an eighth of what came before (RFC 6298's smoothing): it follows a service
// that becomes slower or faster. The second is of the ages of those held now: it
// notices at once when everything hangs and nothing ends.
type holds struct {
	mu     sync.Mutex // protects what follows; never held while calling out
	mean   time.Duration
	ended  bool          // mean has been learnt
	open   int           // locks held now
	starts time.Duration // sum of their start times; it may wrap, the sum of ages does not
}

// origin is the zero of start times, so that they can be summed.
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

// learnt is one second before there is anything to learn from.
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

// begin begins the hold of lock, taken at start: its end by WithMaxHold, and the
// hook for when it is over.
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

// retry is what a refused client is told to wait.
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
