package sqllock

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/waiting"
)

// A request comes to the key table. It is decided at once where the table knows
// enough. Otherwise it waits for the source, or for another caller.

// waitOf returns what a call wants that waits with this ctx.
func waitOf(ctx context.Context) want {
	return want{waits: true, rank: waiting.TermsOf(ctx).Rank}
}

// acquire acquires key, or waits for it. The request is reused, so that a call
// which is decided at once allocates nothing for it.
func (t *keyTable) acquire(ctx context.Context, key Key, w want) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, t.fail(ended(ctx), w)
	}
	r := t.requests.Get().(*request)
	r.ctx, r.want = ctx, w
	r.oneKey[0], r.oneState[0] = key, nil
	r.keys, r.states = r.oneKey[:], r.oneState[:]
	lock, err := t.submit(r)
	*r = request{done: r.done, timer: r.timer}
	t.requests.Put(r)
	return lock, err
}

// fail counts a call that fails with err before it is on the table, and returns
// err.
func (t *keyTable) fail(err error, w want) error {
	if !w.attempt {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.calledBy.count(err)
	}
	return err
}

// submit puts r on the table, and waits until it is decided or its context
// ends.
func (t *keyTable) submit(r *request) (*Lock, error) {
	if r.waits {
		t.noteWait(r)
	}
	t.mu.Lock()
	t.placeLocked(r)
	if r.decided {
		t.mu.Unlock()
		return r.lock, r.err
	}
	r.parked = true
	t.mu.Unlock()
	var timeout <-chan time.Time
	if limit := max(t.timeout, t.tryTimeout); limit > 0 && !r.waits {
		timeout = r.startTimer(limit)
		defer r.timer.Stop()
	}
	select {
	case <-r.done:
		return r.lock, r.err
	case <-r.ctx.Done():
		return t.withdraw(r, ended(r.ctx))
	case <-timeout:
		return t.withdraw(r, nil)
	}
}

// startTimer starts the timer of r, which is kept for reuse, and returns its
// channel.
func (r *request) startTimer(d time.Duration) <-chan time.Time {
	if r.timer == nil {
		r.timer = time.NewTimer(d)
	} else {
		r.timer.Reset(d)
	}
	return r.timer.C
}

// placeLocked decides r from the table where it can. Otherwise it puts r among
// the waiters of its keys, and sees that they are requested.
//
// It asks whether the source is away only where the table would decide
// otherwise. A request that reaches the source hears it there.
func (t *keyTable) placeLocked(r *request) {
	t.calls++
	r.number = t.calls
	if r.waits {
		t.waiting++
	}
	if t.closed {
		t.decideLocked(r, nil, ErrClosed)
		return
	}
	switch {
	case r.all:
		t.placeAllLocked(r)
		return
	case r.each != nil:
		t.placeEachLocked(r)
		return
	}
	fresh := 0 // keys that no statement requests yet
	var last *keyState
	for i, key := range r.keys {
		k := t.keys.of(key.id())
		if k != nil {
			denied := t.joinLocked(r, k, key)
			if r.decided {
				return
			}
			if denied {
				continue
			}
		}
		if k = t.lineUpLocked(r, i, k); k.phase == idle && !k.polling {
			fresh++
			last = k
		}
	}
	switch {
	case r.open == 0:
		t.decideLocked(r, nil, ErrHeld)
	case fresh == 1:
		t.source.take(last)
	case fresh > 1:
		t.source.takeGroup(r)
	}
}

// joinLocked decides r at once if k lets it: r takes over a key that is being
// released, joins readers, or fails because the source is away. It reports
// whether k is denied to r, which only tries.
func (t *keyTable) joinLocked(r *request, k *keyState, key Key) (denied bool) {
	switch {
	case k.phase == releasing && len(k.waiters) == 0 && t.source.away(k) == nil && t.mayHandOverLocked(k, r, key):
		t.replyLocked(k, nil)
		t.reacquiredLocked(k)
		k.own.named(key)
		t.grantLocked(k, r, key)
		return false
	case r.mode == shared && t.mayJoinLocked(k, key):
		k.own.named(key)
		t.grantLocked(k, r, key)
		return false
	case r.waits:
		return false
	case k.phase == held:
		return true
	}
	mustWait := k.mustWait(r)
	if k.phase != idle || mustWait {
		if err := t.source.away(k); err != nil {
			t.decideLocked(r, nil, err)
			return false
		}
	}
	return mustWait
}
