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

func clamp(d time.Duration) time.Duration { return min(max(d, minRetryAfter), maxRetryAfter) }

// A heldForLocker knows how long another process has held a key.
// [*sqllock.Session] is such a Locker.
type heldForLocker interface {
	HeldFor(key sqllock.Key) (age time.Duration, ok bool)
}

// retryAfter counts a rejection, and returns how long its client should wait:
// see [WithRetryAfter].
func (p *place) retryAfter() time.Duration {
	left, ahead := p.l.holds.reject(p.number)
	if !left.known { // other processes hold the id
		ahead = rand.IntN(3) //nolint:gosec // no secret; it is unknown whom they have rejected
		p.lookElsewhere(&left)
	}
	d := clamp(left.first) + spread(ahead, clamp(left.mean)/time.Duration(p.limit))
	if p.l.retryAfter != nil {
		d = p.l.retryAfter(d)
	}
	if d <= 0 {
		return minRetryAfter
	}
	return d
}

// spread returns a random time of up to each for each client ahead, so that
// clients that were rejected one after the other do not return together.
func spread(ahead int, each time.Duration) time.Duration {
	most := min(time.Duration(ahead), maxRetryAfter/each) * each
	return rand.N(most + 1) //nolint:gosec // no secret
}

// A timeLeft is how long the first of an id's holds should still take.
type timeLeft struct {
	mean  time.Duration // of holds that have ended
	first time.Duration // if no hold of the id is known, the mean
	known bool
}

// add adds a hold of this age. One that is older than the mean is expected to
// take as long again as it is late.
func (t *timeLeft) add(age time.Duration) {
	if left := (t.mean - age).Abs(); !t.known || left < t.first {
		t.first, t.known = left, true
	}
}

// reject counts a rejection of an id. It returns how long the open holds of the
// id should still take, and how many requests were rejected before, since the
// last of them began.
func (hs *holds) reject(id int64) (left timeLeft, before int) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	left = timeLeft{mean: hs.mean, first: hs.mean}
	of, ok := hs.open[id]
	if !ok {
		return left, 0
	}
	for _, start := range of.starts {
		left.add(time.Since(start))
	}
	before = of.rejected
	of.rejected++
	hs.open[id] = of
	return left, before
}

// lookElsewhere adds the holds of other processes, as far as the Locker knows
// them.
func (p *place) lookElsewhere(left *timeLeft) {
	if p.l.heldFor == nil {
		return
	}
	for _, key := range p.slots {
		if age, ok := p.l.heldFor.HeldFor(key); ok {
			left.add(age)
		}
	}
}
