package sqllock

import (
	"fmt"
	"slices"
)

// decideLocked gives a its verdict and takes it off the table.
func (t *keyTable) decideLocked(r *request, lock *Lock, err error) {
	r.decided, r.lock, r.err = true, lock, err
	if r.waits {
		t.waiting--
	}
	for _, k := range r.states { // of all before anything else: what follows may come back here
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
	if r.parked {
		t.wakeLocked(r.done)
	}
}

// wakeLocked puts the token for which a caller waits in its channel. Those whom
// one statement answers are woken after the mutex is free: the first thing
// that each of them does is to ask for it.
func (t *keyTable) wakeLocked(done chan struct{}) {
	if t.wakes != nil {
		*t.wakes = append(*t.wakes, done)
	} else {
		done <- struct{}{}
	}
}

// continueLocked sees that e, which may have lost who was to ask for it, is asked for
// as long as it is wanted, and forgotten when it is not.
func (t *keyTable) continueLocked(k *keyState) {
	switch {
	case k.phase == idle && len(k.waiters) > 0 && !k.pending() && !t.closed:
		t.resumeLocked(k)
	case k.phase == held && k.shared: // who has left may have stood before readers
		t.admitLocked(k)
	default:
		t.forgetLocked(k)
	}
}

// pending reports whether an idle e will be asked for without more ado.
func (k *keyState) pending() bool {
	return k.polling || slices.ContainsFunc(k.waiters, func(r *request) bool { return r.enqueued })
}

func (k *keyState) drop(r *request) {
	if i := slices.Index(k.waiters, r); i >= 0 {
		k.waiters = slices.Delete(k.waiters, i, i+1)
	}
}

// everybody is for denyTriesLocked: no call has a higher number.
const everyRequest = ^uint64(0)

// denyTriesLocked settles those who only try for e and came no later than the call
// numbered upTo: with err, or, if they are refused and try for other keys too,
// when the last key has refused them.
func (t *keyTable) denyTriesLocked(k *keyState, err error, upTo uint64) {
	for i := 0; i < len(k.waiters); {
		r := k.waiters[i]
		if r.waits || r.number > upTo {
			i++
			continue
		}
		t.denyOneLocked(k, r, err)
	}
}

// denyBusyLocked is denyTriesLocked after the answer that somebody else holds e's key. That it
// is not to be had alone says nothing of those who would read beside others.
func (t *keyTable) denyBusyLocked(k *keyState) {
	for i := 0; i < len(k.waiters); {
		r := k.waiters[i]
		if r.waits || r.number > k.upTo || r.shared && !k.shared {
			i++
			continue
		}
		t.denyOneLocked(k, r, ErrHeld)
	}
}

// denyOneLocked takes a off e, with err.
func (t *keyTable) denyOneLocked(k *keyState, r *request, err error) {
	k.drop(r)
	r.states[slices.Index(r.states, k)] = nil
	r.open--
	switch {
	case r.open == 0 || r.all || err != ErrHeld:
		t.decideLocked(r, nil, err)
	case r.hasIdleKey():
		t.source.takeGroup(r)
	}
}

// hasIdleKey reports whether there is a key that a wants and nobody asks for.
func (r *request) hasIdleKey() bool {
	return slices.ContainsFunc(r.states, func(k *keyState) bool {
		return k != nil && k.phase == idle && !k.polling
	})
}

// timedOutLocked is the error when the timeout is used up.
func (t *keyTable) timedOutLocked() error {
	if t.onTimeout != nil {
		t.onTimeout()
	}
	return fmt.Errorf("%w: no answer within %v", ErrUnavailable, t.timeout)
}
