package sqllock

import (
	"errors"
	"slices"
	"time"
)

// A lock is released. Its key passes to the next waiter of this process, or
// goes back to the source.

// unlock implements home. It returns ErrLost if the source has lost the key,
// and waits for the source unless the key passes on.
func (t *keyTable) unlock(l *Lock) error {
	var r *reply
	t.mu.Lock()
	expired, err := t.unlockLocked(l, &r)
	pending := r.beganLocked()
	t.mu.Unlock()
	if expired {
		l.life.loseLease()
	}
	if r != nil {
		errs, complete := t.await(r, pending)
		err = errs[0]
		t.reuseReply(r, complete)
	}
	return err
}

// unlockLocked begins an unlock. The source's result is to come in r, which is
// made if need be. If it is not in r, the result is err. If the lock has
// expired, the caller must say so.
func (t *keyTable) unlockLocked(l *Lock, r **reply) (expired bool, err error) {
	k := l.state
	if !k.heldBy(l) { // the source has lost it
		return false, ErrLost
	}
	// The source's answer reports a loss while the system was suspended. Here the
	// source is not asked, or its answer is not waited for.
	if (t.asyncUnlock || len(k.waiters) > 0 || len(k.readers) > 1) && k.own.expired() {
		return true, ErrLost
	}
	t.leaveLocked(k, l, r)
	return false, nil
}

// unlockAll is unlock for several locks, which the source frees together. It
// finishes them, and joins their errors.
func (t *keyTable) unlockAll(locks []*Lock) error {
	type unlocking struct {
		place   int // in the reply; -1: err is the result
		expired bool
		err     error
	}
	var (
		array [4]unlocking // most calls have a few locks: no allocation
		all   = array[:0]
		r     *reply
	)
	t.mu.Lock()
	for _, l := range locks {
		n := r.keys()
		expired, err := t.unlockLocked(l, &r)
		if r.keys() == n {
			n = -1
		}
		all = append(all, unlocking{n, expired, err})
	}
	pending := r.beganLocked()
	t.mu.Unlock()
	for i, u := range all {
		if u.expired {
			locks[i].life.loseLease()
		}
	}
	var replies, errs []error
	if r != nil {
		var complete bool
		replies, complete = t.await(r, pending)
		defer t.reuseReply(r, complete)
	}
	for i, u := range all {
		if u.place >= 0 {
			u.err = replies[u.place]
		}
		if locks[i].finish(u.err) != nil {
			errs = append(errs, u.err)
		}
	}
	return errors.Join(errs...)
}

// heldBy reports whether l is the lock of k, or of one of its readers.
func (k *keyState) heldBy(l *Lock) bool {
	if k.mode == exclusive {
		return k.lock == l
	}
	_, reads := k.readers[l]
	return reads
}

// leaveLocked takes l off k, which goes to the next waiter or back to the
// source, whose result comes in r.
func (t *keyTable) leaveLocked(k *keyState, l *Lock, r **reply) {
	k.lock = nil
	if k.mode == shared {
		if delete(k.readers, l); len(k.readers) > 0 {
			return
		}
	}
	if len(k.waiters) > 0 {
		if first, key := k.waiters[0], k.firstKey(); t.mayHandOverLocked(k, first, key) {
			t.reacquiredLocked(k)
			t.grantLocked(k, first, key)
			return
		}
	}
	if !t.asyncUnlock {
		if *r == nil {
			*r = t.replies.Get().(*reply)
		}
		(*r).add(k)
	}
	t.releaseLocked(k)
}

// firstKey returns the name under which the first waiter wants k.
func (k *keyState) firstKey() Key { return k.waiters[0].keyOf(k) }

// await waits for the source's responses to releases, if any is pending, up to
// the timeout of the table. It returns them in the order in which the keys were
// added, and whether all have come. After the timeout the source still completes
// the releases.
func (t *keyTable) await(r *reply, pending bool) (errs []error, complete bool) {
	switch {
	case !pending:
		return r.errs, true
	case t.timeout == 0:
		<-r.done
		return r.errs, true
	}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.errs, true
	case <-timer.C:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	err := t.timedOutLocked()
	errs = slices.Clone(r.errs)
	for i := range errs {
		if errs[i] == errNoReply {
			errs[i] = err
		}
	}
	return errs, false
}

// reuseReply makes the memory of r, which is complete, available to others.
func (t *keyTable) reuseReply(r *reply, complete bool) {
	if !complete {
		return
	}
	clear(r.errs)
	r.errs = r.errs[:0]
	t.replies.Put(r)
}

// replyLocked completes the Unlock that waits for k, if one does.
func (t *keyTable) replyLocked(k *keyState, err error) {
	r := k.reply
	if r == nil {
		return
	}
	k.reply = nil
	r.errs[k.replyPlace] = err
	if r.left--; r.left == 0 {
		t.wakeLocked(r.done)
	}
}

// freedLocked is the source's response that this process does not have the key
// of k any more. It was released (nil) or lost. The source's value does not
// describe the grant any more.
//
// If this process has kept the key for longer than fairness, its waiters pause,
// so that another process gets it.
func (t *keyTable) freedLocked(k *keyState, err error) {
	t.held--
	t.replyLocked(k, err)
	k.phase, k.lock, k.readers = idle, nil, nil
	if r := k.reservedFor; r != nil { // lost
		k.reservedFor = nil
		r.each.forget(k)
		t.decideLocked(r, nil, errSessionLost)
	}
	if k.pool != nil && err == nil {
		k.pool.freed.add(k.place)
	}
	switch {
	case len(k.waiters) == 0:
		t.forgetLocked(k)
	case k.waiters[0].waits && now()-k.since >= fairness && t.handOver != forever && !k.tried():
		k.since = 0
		t.pollAfterLocked(k, yieldFor)
	case err != nil: // another process may have had the key meanwhile
		k.since = 0
		t.resumeLocked(k)
	default:
		t.resumeLocked(k)
	}
}
