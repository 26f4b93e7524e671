package sqllock

import (
	"errors"
	"slices"
	"time"
)

// giveLocked makes a the holder of e's key, which the source has granted, or one
// of its readers.
func (t *table) giveLocked(e *entry, a *ask, key Key) {
	t.settleLocked(a, t.lockLocked(e, a, key), nil)
}

// lockLocked is the lock of e's key, now held by a.
func (t *table) lockLocked(e *entry, a *ask, key Key) *Lock {
	e.state = held
	e.polls, e.full = 0, nil
	lock := &Lock{key: key, ctx: a.ctx, home: t, entry: e, lease: e.holds.lease, shared: e.shared}
	if e.holds.tx != nil {
		lock.tx = e.holds.tx.tx
	}
	if e.shared {
		e.addReader(lock)
	} else {
		e.lock = lock
	}
	return lock
}

// grantedLocked is the source's answer, come at this time, that e's key is this
// process's now.
func (t *table) grantedLocked(e *entry, holds holding, at time.Duration) {
	t.ownLocked(e, holds, at)
	if e.shared {
		t.admitLocked(e)
	} else if a := e.first(); a != nil && !a.shared {
		if key := a.keyOf(e); e.suits(key) {
			t.giveLocked(e, a, key)
		}
	}
	if e.state != held { // who asked has given up
		t.releaseLocked(e)
		return
	}
	t.dismissLocked(e, ErrHeld, everybody)
}

// ownLocked notes that e's key is this process's from now on.
func (t *table) ownLocked(e *entry, holds holding, at time.Duration) {
	t.held++
	e.holds, e.acquired = holds, at
	if e.since == 0 {
		e.since = at
	}
}

// refusedLocked is the source's answer that e's key was not taken: ErrHeld because
// somebody else holds it, or an error. Who came after the question was sent is
// not told "held" by an answer that may be older than the call: they are asked
// for again.
func (t *table) refusedLocked(e *entry, err error) {
	e.state = idle
	e.since, e.full = 0, nil
	if err != ErrHeld {
		if errors.Is(err, ErrCapacity) {
			e.full = err
		}
		t.dismissLocked(e, err, everybody)
	} else {
		t.dismissBusyLocked(e)
	}
	for len(e.asks) > 0 && errors.Is(err, ErrClosed) { // it will never be otherwise
		t.settleLocked(e.asks[0], nil, err)
	}
	if len(e.asks) == 0 {
		t.tidyLocked(e)
		return
	}
	if e.state != idle || e.polling {
		return
	}
	switch {
	case err != ErrHeld:
		t.pollAfterLocked(e, jitter(pollAway))
	case e.tried():
		t.resumeLocked(e)
	default:
		e.polls++
		t.pollAfterLocked(e, pollPause(e.polls))
	}
}

// unlock implements home.
func (t *table) unlock(l *Lock) error {
	t.mu.Lock()
	e := l.entry
	if !e.heldBy(l) { // the source has lost it
		t.mu.Unlock()
		return ErrLost
	}
	// Where the server has a say, its answer tells of a loss in a suspend.
	if (t.asyncUnlock || len(e.asks) > 0 || len(e.readers) > 1) && l.lease != nil && l.lease.expired() {
		t.mu.Unlock()
		l.lease.lose(lossLease)
		return ErrLost
	}
	e.lock = nil
	if e.shared {
		if delete(e.readers, l); len(e.readers) > 0 {
			t.mu.Unlock()
			return nil
		}
	}
	if len(e.asks) > 0 {
		if first, key := e.asks[0], e.firstKey(); t.mayHandOverLocked(e, first, key) {
			t.reacquiredLocked(e)
			t.giveLocked(e, first, key)
			t.mu.Unlock()
			return nil
		}
	}
	var r *reply
	if !t.asyncUnlock {
		r = t.replies.Get().(*reply)
		e.reply = r
	}
	t.releaseLocked(e)
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	return t.await(l, r)
}

// await waits for the answer to l's release.
func (t *table) await(l *Lock, r *reply) error {
	if t.patience == 0 {
		<-r.done
		err := r.err
		t.replies.Put(r)
		return err
	}
	timer := time.NewTimer(t.patience)
	defer timer.Stop()
	select {
	case <-r.done:
		return r.err
	case <-timer.C:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.silentLocked()
	}
}

// releaseLocked has the source give e's key back.
func (t *table) releaseLocked(e *entry) {
	e.state = releasing
	t.source.giveBack(e)
}

// reacquiredLocked notes that e, which this process has, changes hands.
func (t *table) reacquiredLocked(e *entry) {
	if t.registers {
		e.acquired = now()
	}
}

// firstKey is e's key as the first in line asked for it.
func (e *entry) firstKey() Key { return e.asks[0].keyOf(e) }

// keyOf is e's key as a asked for it.
func (a *ask) keyOf(e *entry) Key { return a.keys[slices.Index(a.entries, e)] }

// suits reports whether e, which is granted, may be held as key: one made with a secret
// needs its claim, under which another name of the same number was not asked for.
func (e *entry) suits(key Key) bool {
	s := e.holds.stake
	return key.print == 0 || e.holds.lease == nil || s != nil && s.claim == key.claim()
}

// mayHandOverLocked reports whether e's key may go to another caller of this process, a, which
// asks for it as key, without passing through the database.
func (t *table) mayHandOverLocked(e *entry, a *ask, key Key) bool {
	if !e.suits(key) || a.all || a.shared != e.shared {
		return false
	}
	if t.handOver == forever {
		return true
	}
	return t.handOver > 0 && !t.closed && now()-e.since < t.handOver && (e.holds.lease == nil || !e.holds.lease.expired())
}

func (t *table) settleReplyLocked(e *entry, err error) {
	if e.reply != nil {
		e.reply.err = err
		t.wakeLocked(e.reply.done)
		e.reply = nil
	}
}

// freedLocked is the source's word that e's key is no longer this process's: given
// back (nil) or lost.
func (t *table) freedLocked(e *entry, err error) {
	t.held--
	t.settleReplyLocked(e, err)
	e.state, e.lock, e.readers, e.holds = idle, nil, nil, holding{}
	switch {
	case len(e.asks) == 0:
		t.tidyLocked(e)
	case e.asks[0].waits && now()-e.since >= fairness && t.handOver != forever && !e.tried():
		e.since = 0
		t.pollAfterLocked(e, yieldFor)
	default:
		t.resumeLocked(e)
	}
}

// askingLocked notes that e is being asked for from now on, for those who read or for one alone.
func (t *table) askingLocked(e *entry, shared bool) {
	e.state, e.upTo, e.shared = asking, t.asked, shared
}

// resumeLocked asks for e, which is idle and wanted.
func (t *table) resumeLocked(e *entry) {
	switch first := e.asks[0]; {
	case first.all && !first.ready(): // the answer to another of its keys sees to this one
	case len(first.keys) > 1 && !first.waits:
		t.source.askGroup(first)
	default:
		t.source.ask(e)
	}
}

// pollAfterLocked has e's first waiter ask again after a pause.
func (t *table) pollAfterLocked(e *entry, pause time.Duration) {
	e.polling = true
	if e.timer != nil {
		e.timer.Reset(pause)
		return
	}
	e.timer = time.AfterFunc(pause, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.pollLocked(e)
	})
}

func (t *table) pollLocked(e *entry) {
	if !e.polling || t.closed {
		return
	}
	e.polling = false
	if e.state == idle && len(e.asks) > 0 {
		t.source.ask(e)
	}
}
