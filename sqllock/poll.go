package sqllock

import (
	"math/rand/v2"
	"time"
)

const (
	// The first waiter of a key tries again after a pause that doubles from
	// pollMin to pollMax, less a random part of up to a half.
	pollMin = 2 * time.Millisecond
	pollMax = 48 * time.Millisecond

	// pollAway is the pause, likewise, while the database does not answer.
	pollAway = 250 * time.Millisecond
)

// pollPause is how long to wait before the nth attempt at a busy key.
func pollPause(n int) time.Duration {
	return jitter(min(pollMin<<min(n, 10), pollMax))
}

// jitter takes up to a half off d, so that the waiters for one thing do not all
// come at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}

// pollAfterLocked has the first waiter of k try again after a pause.
func (t *keyTable) pollAfterLocked(k *keyState, pause time.Duration) {
	k.polling = true
	if k.timer != nil {
		k.timer.Reset(pause)
		return
	}
	k.timer = time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pollLocked(k)
	})
}

// pollLocked requests k again, if the pause has not been cut short.
func (t *keyTable) pollLocked(k *keyState) {
	if !k.polling || t.closed {
		return
	}
	k.polling = false
	if k.phase == idle && len(k.waiters) > 0 {
		t.source.take(k)
	}
}
