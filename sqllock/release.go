package sqllock

import (
	"errors"
	"time"
)

// A lock is released. Its key passes to the next waiter of this process, or
// goes back to the source.

// unlock implements home. It returns ErrLost if the source has lost the key,
// and waits for the source unless the key passes on.
func (t *keyTable) unlock(l *Lock) error {
	t.mu.Lock()
	r, expired, err := t.unlockLocked(l)
	t.mu.Unlock()
	if expired {
		l.expire()
	}
	if r == nil {
		return err
	}
	return t.await(r)
}

// unlockLocked begins an unlock. It returns the reply to wait for, or nil and
// the result. If the lock has expired, the caller must say so.
func (t *keyTable) unlockLocked(l *Lock) (r *reply, expired bool, err error) {
	k := l.state
	if !k.heldBy(l) { // the source has lost it
		return nil, false, ErrLost
	}
	// The source's answer reports a loss while the system was suspended. Here the
	// source is not asked, or its answer is not waited for.
	if (t.asyncUnlock || len(k.waiters) > 0 || len(k.readers) > 1) && k.own.expired() {
		return nil, true, ErrLost
	}
	return t.leaveLocked(k, l), false, nil
}

// unlockAll is unlock for several locks, which the source frees together. It
// finishes them, and joins their errors.
func (t *keyTable) unlockAll(locks []*Lock) error {
	type unlocking struct {
		reply   *reply
		expired bool
		err     error
	}
	var array [4]unlocking // most calls have a few locks: no allocation
	all := array[:0]
	t.mu.Lock()
	for _, l := range locks {
		r, expired, err := t.unlockLocked(l)
		all = append(all, unlocking{r, expired, err})
	}
	t.mu.Unlock()
	var errs []error
	for i, u := range all {
		if u.expired {
			locks[i].expire()
		}
		if u.reply != nil {
			u.err = t.await(u.reply)
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
// source. It returns the reply to wait for, or nil.
func (t *keyTable) leaveLocked(k *keyState, l *Lock) *reply {
	k.lock = nil
	if k.mode == shared {
		if delete(k.readers, l); len(k.readers) > 0 {
			return nil
		}
	}
	if len(k.waiters) > 0 {
		if first, key := k.waiters[0], k.firstKey(); t.mayHandOverLocked(k, first, key) {
			t.reacquiredLocked(k)
			t.grantLocked(k, first, key)
			return nil
		}
	}
	var r *reply
	if !t.asyncUnlock {
		r = t.replies.Get().(*reply)
		k.reply = r
	}
	t.releaseLocked(k)
	return r
}

// firstKey returns the name under which the first waiter wants k.
func (k *keyState) firstKey() Key { return k.waiters[0].keyOf(k) }

// await waits for the source's response to a release, up to the timeout of the
// table. After that the source still completes the release.
func (t *keyTable) await(r *reply) error {
	if t.timeout == 0 {
		<-r.done
		err := r.err
		t.replies.Put(r)
		return err
	}
	timer := time.NewTimer(t.timeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-timer.C:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.timedOutLocked()
	}
}

// replyLocked completes the Unlock that waits for k, if one does.
func (t *keyTable) replyLocked(k *keyState, err error) {
	if k.reply != nil {
		k.reply.err = err
		t.wakeLocked(k.reply.done)
		k.reply = nil
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
