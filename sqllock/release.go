package sqllock

import (
	"errors"
	"slices"
	"time"
)

// grantLocked makes a the holder of e's key, which the source has granted, or one
// of its readers.
func (t *keyTable) grantLocked(k *keyState, r *request, key Key) {
	t.decideLocked(r, t.newLockLocked(k, r, key), nil)
}

// newLockLocked is the lock of e's key, now held by a.
func (t *keyTable) newLockLocked(k *keyState, r *request, key Key) *Lock {
	k.phase = held
	k.polls, k.full = 0, nil
	lock := &Lock{key: key, ctx: r.ctx, home: t, state: k, conn: k.holds.conn, shared: k.shared}
	if k.holds.tx != nil {
		lock.tx = k.holds.tx.tx
	}
	if k.shared {
		k.addReader(lock)
	} else {
		k.lock = lock
	}
	return lock
}

// grantedLocked is the source's answer, come at this time, that e's key is this
// process's now.
func (t *keyTable) grantedLocked(k *keyState, holds holding, at time.Duration) {
	t.markHeldLocked(k, holds, at)
	if k.shared {
		t.admitLocked(k)
	} else if r := k.first(); r != nil && !r.shared {
		if key := r.keyOf(k); k.suits(key) {
			t.grantLocked(k, r, key)
		}
	}
	if k.phase != held { // who asked has given up
		t.releaseLocked(k)
		return
	}
	t.denyTriesLocked(k, ErrHeld, everyRequest)
}

// markHeldLocked notes that e's key is this process's from now on.
func (t *keyTable) markHeldLocked(k *keyState, holds holding, at time.Duration) {
	t.held++
	k.holds, k.acquired = holds, at
	if k.since == 0 {
		k.since = at
	}
}

// deniedLocked is the source's answer that e's key was not taken: ErrHeld because
// somebody else holds it, or an error. Who came after the question was sent is
// not told "held" by an answer that may be older than the call: they are asked
// for again.
func (t *keyTable) deniedLocked(k *keyState, err error) {
	k.phase = idle
	k.since, k.full = 0, nil
	if err != ErrHeld {
		if errors.Is(err, ErrCapacity) {
			k.full = err
		}
		t.denyTriesLocked(k, err, everyRequest)
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
		k.polls++
		t.pollAfterLocked(k, pollPause(k.polls))
	}
}

// unlock implements home.
func (t *keyTable) unlock(l *Lock) error {
	t.mu.Lock()
	k := l.state
	if !k.heldBy(l) { // the source has lost it
		t.mu.Unlock()
		return ErrLost
	}
	// Where the server has a say, its answer tells of a loss in a suspend.
	if (t.asyncUnlock || len(k.waiters) > 0 || len(k.readers) > 1) && l.conn != nil && l.conn.expired() {
		t.mu.Unlock()
		l.conn.loseConnection(lossLease)
		return ErrLost
	}
	k.lock = nil
	if k.shared {
		if delete(k.readers, l); len(k.readers) > 0 {
			t.mu.Unlock()
			return nil
		}
	}
	if len(k.waiters) > 0 {
		if first, key := k.waiters[0], k.firstKey(); t.mayHandOverLocked(k, first, key) {
			t.reacquiredLocked(k)
			t.grantLocked(k, first, key)
			t.mu.Unlock()
			return nil
		}
	}
	var r *reply
	if !t.asyncUnlock {
		r = t.replies.Get().(*reply)
		k.reply = r
	}
	t.releaseLocked(k)
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	return t.await(l, r)
}

// await waits for the answer to l's release.
func (t *keyTable) await(l *Lock, r *reply) error {
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

// releaseLocked has the source give e's key back.
func (t *keyTable) releaseLocked(k *keyState) {
	k.phase = releasing
	t.source.giveBack(k)
}

// reacquiredLocked notes that e, which this process has, changes hands.
func (t *keyTable) reacquiredLocked(k *keyState) {
	if t.registers {
		k.acquired = now()
	}
}

// firstKey is e's key as the first in line asked for it.
func (k *keyState) firstKey() Key { return k.waiters[0].keyOf(k) }

// keyOf is e's key as a asked for it.
func (r *request) keyOf(k *keyState) Key { return r.keys[slices.Index(r.states, k)] }

// suits reports whether e, which is granted, may be held as key: one made with a secret
// needs its claim, under which another name of the same number was not asked for.
func (k *keyState) suits(key Key) bool {
	use := k.holds.use
	return key.print == 0 || k.holds.conn == nil || use != nil && use.check == key.secretCheck()
}

// mayHandOverLocked reports whether e's key may go to another caller of this process, a, which
// asks for it as key, without passing through the database.
func (t *keyTable) mayHandOverLocked(k *keyState, r *request, key Key) bool {
	if !k.suits(key) || r.all || r.shared != k.shared {
		return false
	}
	if t.handOver == forever {
		return true
	}
	return t.handOver > 0 && !t.closed && now()-k.since < t.handOver && (k.holds.conn == nil || !k.holds.conn.expired())
}

func (t *keyTable) replyLocked(k *keyState, err error) {
	if k.reply != nil {
		k.reply.err = err
		t.wakeLocked(k.reply.done)
		k.reply = nil
	}
}

// freedLocked is the source's word that e's key is no longer this process's: given
// back (nil) or lost.
func (t *keyTable) freedLocked(k *keyState, err error) {
	t.held--
	t.replyLocked(k, err)
	k.phase, k.lock, k.readers, k.holds = idle, nil, nil, holding{}
	switch {
	case len(k.waiters) == 0:
		t.forgetLocked(k)
	case k.waiters[0].waits && now()-k.since >= fairness && t.handOver != forever && !k.tried():
		k.since = 0
		t.pollAfterLocked(k, yieldFor)
	default:
		t.resumeLocked(k)
	}
}

// requestedLocked notes that e is being asked for from now on, for those who read or for one alone.
func (t *keyTable) requestedLocked(k *keyState, shared bool) {
	k.phase, k.upTo, k.shared = requested, t.calls, shared
}

// resumeLocked asks for e, which is idle and wanted.
func (t *keyTable) resumeLocked(k *keyState) {
	switch first := k.waiters[0]; {
	case first.all && !first.ready(): // the answer to another of its keys sees to this one
	case len(first.keys) > 1 && !first.waits:
		t.source.takeGroup(first)
	default:
		t.source.take(k)
	}
}

// pollAfterLocked has e's first waiter ask again after a pause.
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

func (t *keyTable) pollLocked(k *keyState) {
	if !k.polling || t.closed {
		return
	}
	k.polling = false
	if k.phase == idle && len(k.waiters) > 0 {
		t.source.take(k)
	}
}
