package sqllock

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// How a request ends without a lock, and when the waiters of a key request it
// again.

// lineUpLocked makes r a waiter of its key number i. k is the state of that
// key, or nil if it has none yet.
func (t *keyTable) lineUpLocked(r *request, i int, k *keyState) *keyState {
	key := r.keys[i]
	if k == nil {
		k = t.newKeyLocked(key.id())
	}
	k.own.named(key)
	k.insert(r)
	r.states[i] = k
	r.open++
	if k.phase == idle && k.polling && !r.waits && !r.all { // r is here only behind waiting readers, and may ask at once
		t.endPauseLocked(k)
	}
	return k
}

// withdraw takes r off the table, unless it has been decided meanwhile. cause
// is why its context ended. If it is nil, the table's timeout has passed.
func (t *keyTable) withdraw(r *request, cause error) (*Lock, error) {
	t.mu.Lock()
	if !r.decided {
		err := cause
		if cause == nil {
			err = t.timedOutLocked()
		} else if reason := t.waitErrorLocked(r); reason != nil {
			err = fmt.Errorf("%w: %w", reason, cause)
		}
		t.decideLocked(r, nil, err)
	}
	t.mu.Unlock()
	<-r.done
	return r.lock, r.err
}

// waitErrorLocked returns why r has waited without success: the source is away,
// or denies its keys. It is nil if another holder simply had them.
func (t *keyTable) waitErrorLocked(r *request) error {
	if !r.waits {
		return nil
	}
	if err := t.source.away(r.firstState()); err != nil {
		return err
	}
	for _, k := range r.states {
		if k == nil {
			continue
		}
		if err := k.own.denial(); err != nil {
			return err
		}
	}
	return nil
}

// timedOutLocked returns the error when the table's timeout has passed.
func (t *keyTable) timedOutLocked() error {
	if t.timeout == 0 {
		return errNoAnswer
	}
	if t.onTimeout != nil {
		t.onTimeout()
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, t.timeout)
}

// decideLocked decides r and takes it off the table.
func (t *keyTable) decideLocked(r *request, lock *Lock, err error) {
	r.decided, r.lock, r.err = true, lock, err
	if !r.attempt {
		t.calledBy.count(err)
	}
	if r.waits {
		t.waiting--
	}
	for _, k := range r.states { // off all keys before anything else: what follows may come back here
		if k != nil {
			k.drop(r)
		}
	}
	for i, k := range r.states {
		if k != nil {
			r.states[i] = nil
			t.continueLocked(k)
		}
	}
	if r.each != nil {
		t.returnReservedLocked(r)
	}
	if r.parked {
		t.wakeLocked(r.done)
	}
}

// wakeLocked puts the token for which a caller waits into its channel. The
// callers of one batch are woken once mu is free, because each of them locks it
// first.
func (t *keyTable) wakeLocked(done chan struct{}) {
	if t.wakes != nil {
		*t.wakes = append(*t.wakes, done)
	} else {
		done <- struct{}{}
	}
}

// continueLocked restores the invariant of k after a request has left it: k is
// requested while it is wanted, and forgotten otherwise.
func (t *keyTable) continueLocked(k *keyState) {
	switch {
	case k.phase == idle && len(k.waiters) > 0 && !k.pending() && !t.closed:
		t.resumeLocked(k)
	case k.phase == held && k.mode == shared: // the request may have stood before readers
		t.admitLocked(k)
	default:
		t.forgetLocked(k)
	}
}

// resumeLocked requests k, which is idle and wanted.
func (t *keyTable) resumeLocked(k *keyState) {
	for _, r := range k.waiters {
		switch {
		case r.each != nil && !r.readyEach(): // the answer to another of its keys decides
			continue
		case r.all && !r.ready(): // likewise
		case r.each != nil, len(r.keys) > 1 && !r.waits:
			t.source.takeGroup(r)
		default:
			t.source.take(k)
		}
		return
	}
}

// requestedLocked notes that a statement requests k from now on, in this mode.
func (t *keyTable) requestedLocked(k *keyState, m lockMode) {
	k.phase, k.upTo, k.mode = requested, t.calls, m
}

// deniedLocked is the source's response that the key of k was not granted:
// ErrHeld because of another holder, or an error.
//
// A call that came after the statement was sent does not get ErrHeld, since
// that response may be older than the call. The key is requested again for it.
func (t *keyTable) deniedLocked(k *keyState, err error) {
	k.phase = idle
	k.since = 0
	if err != ErrHeld {
		t.denyTriesLocked(k, err)
	} else {
		t.denyBusyLocked(k)
	}
	for len(k.waiters) > 0 && errors.Is(err, ErrClosed) { // it will never be otherwise
		t.decideLocked(k.waiters[0], nil, err)
	}
	if len(k.waiters) == 0 {
		t.forgetLocked(k)
		return
	}
	if k.phase != idle || k.polling {
		return
	}
	switch {
	case err != ErrHeld:
		t.pollAfterLocked(k, jitter(pollAway))
	case k.tried():
		t.resumeLocked(k)
	default:
		t.pollBusyLocked(k)
	}
}

// denyTriesLocked denies k, with err, to the requests that only try for it.
func (t *keyTable) denyTriesLocked(k *keyState, err error) {
	t.denyLocked(k, err, func(r *request) bool { return true })
}

// denyBusyLocked denies k because another session holds it. A denial of the
// exclusive mode says nothing to readers. One of the shared mode holds for
// both.
func (t *keyTable) denyBusyLocked(k *keyState) {
	t.denyLocked(k, ErrHeld, func(r *request) bool {
		return r.number <= k.upTo && (r.mode == exclusive || k.mode == shared)
	})
}

// denyLocked denies k to each request that only tries for it and that concerns
// accepts. A request for one of several keys is decided when the last key is
// denied to it.
func (t *keyTable) denyLocked(k *keyState, err error, concerns func(*request) bool) {
	for i := 0; i < len(k.waiters); {
		r := k.waiters[i]
		if r.waits || !concerns(r) {
			i++
			continue
		}
		k.drop(r)
		place := slices.Index(r.states, k)
		r.states[place] = nil
		r.open--
		switch {
		case r.each != nil && err == ErrHeld:
			t.candidateDeniedLocked(r, place)
			i = 0 // what followed may have changed the line
		case r.open == 0 || r.all || err != ErrHeld:
			t.decideLocked(r, nil, err)
		case r.hasIdleKey():
			t.source.takeGroup(r)
		}
	}
}

const (
	// A set is tried again after a pause that doubles from pollMin to pollMax,
	// less a random part of up to a half.
	pollMin = 2 * time.Millisecond

	// pollAway is the pause, likewise, while the database does not answer.
	pollAway = 250 * time.Millisecond
)

// pollPause returns how long to wait before the nth attempt at a busy set.
func pollPause(n int) time.Duration {
	return jitter(min(pollMin<<min(n, 10), pollMax))
}
