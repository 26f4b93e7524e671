package sqllock

import (
	"math/rand/v2"
	"time"
)

// When the waiters of a key that another process holds request it again.
//
// A pause ends with its timer, or before that. Any statement that is sent takes
// along the keys whose last denial is not recent. A bell, where the source
// listens to one, ends all pauses.

const (
	// The first pause of a key's waiters is pollFirst. Then each is as long as
	// they have waited, up to pollMax, or pollHeard if the source listens for the
	// release. Each is less a random part of up to a half.
	pollFirst = 4 * time.Millisecond
	pollMax   = 48 * time.Millisecond
	pollHeard = 100 * time.Millisecond

	// A denied key is not taken along by other statements for alongAfter, and for
	// longer if many keys are denied: perWaited for each.
	alongAfter = 2 * time.Millisecond
	perWaited  = 50 * time.Microsecond

	// yieldFor is how long a process stays away from a key that its callers have
	// handed to each other for the time of fairness. It is longer than the pause
	// between two attempts of a waiter in another process that hears no bell.
	yieldFor = pollMax + pollMax/4
)

// pollBusyLocked lets the waiters of k, which another process holds, pause.
func (t *keyTable) pollBusyLocked(k *keyState) {
	at, most := now(), pollMax
	if k.busySince == 0 {
		k.busySince = at
		t.busy++
	}
	if t.listen != nil && t.listen(k) {
		most = pollHeard
	}
	t.pollAfterLocked(k, jitter(min(max(at-k.busySince, pollFirst), most)))
	k.alongAt = at + max(alongAfter, time.Duration(t.busy)*perWaited)
	t.alongFrom = min(t.alongFrom, k.alongAt)
}

// pollAfterLocked makes the first waiter of k request it again after a pause,
// which nothing cuts short unless the caller sets alongAt.
func (t *keyTable) pollAfterLocked(k *keyState, pause time.Duration) {
	k.polling, k.alongAt = true, forever
	t.pausing[k] = struct{}{}
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

// pollLocked requests k again, if the pause has not been cut short meanwhile.
func (t *keyTable) pollLocked(k *keyState) {
	if !k.polling || t.closed {
		return
	}
	t.endPauseLocked(k)
	if k.phase == idle && len(k.waiters) > 0 {
		t.source.take(k)
	}
}

// pollAlongLocked requests the keys that the next statement may take along.
func (t *keyTable) pollAlongLocked() {
	if len(t.pausing) == 0 {
		return
	}
	at := now()
	if at < t.alongFrom {
		return
	}
	t.alongFrom = forever
	for k := range t.pausing {
		if k.alongAt <= at {
			t.pollLocked(k)
		} else {
			t.alongFrom = min(t.alongFrom, k.alongAt)
		}
	}
}

// pollAllLocked requests all keys whose waiters pause because another process
// holds them. One of them may be free now.
func (t *keyTable) pollAllLocked() {
	for k := range t.pausing {
		if k.alongAt != forever {
			t.pollLocked(k)
		}
	}
}

// jitter takes up to a half off d, so that the waiters for one thing do not all
// come at once.
func jitter(d time.Duration) time.Duration {
	return d - rand.N(d/2+1)
}
