package sqllock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A request is one call that wants one of keys, or all.
//
// Invariant: until it is settled, it is in key states[i].asks for each key states[i]
// that is not nil, and in no other; then it is in none.
type request struct {
	ctx      context.Context
	keys     []Key
	states   []*keyState // beside keys; nil where the key was refused
	open     int         // how many are not nil
	number   uint64      // the count of calls at this one
	waits    bool        // it stays until it gets a key
	shared   bool        // it wants its one key as one of several readers
	all      bool        // it wants all of its keys, and does not wait
	enqueued bool        // it stands in the source's queue, for askGroup
	decided  bool
	parked   bool // the caller waits for the token in done
	lock     *Lock
	locks    Locks // of one that wants all
	err      error
	done     chan struct{} // holds a token when settled, if parked

	// For the registry, of one that waits: since when, and what its caller holds.
	since   time.Duration
	holding []dialect.Key

	oneKey   [1]Key
	oneState [1]*keyState
}

// acquire takes key, or waits for it.
func (t *keyTable) acquire(ctx context.Context, key Key, waits bool) (*Lock, error) {
	return t.acquireOne(ctx, key, waits, false)
}

// acquireShared takes key as one of several readers, or waits for it.
func (t *keyTable) acquireShared(ctx context.Context, key Key, waits bool) (*Lock, error) {
	return t.acquireOne(ctx, key, waits, true)
}

func (t *keyTable) acquireOne(ctx context.Context, key Key, waits, shared bool) (*Lock, error) {
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	r := t.requests.Get().(*request)
	r.shared = shared
	r.oneKey[0], r.oneState[0] = key, nil
	r.keys, r.states = r.oneKey[:], r.oneState[:]
	lock, err := t.submit(ctx, r, waits)
	*r = request{done: r.done}
	t.requests.Put(r)
	return lock, err
}

// acquireAny takes the first free one of keys, or waits for one.
func (t *keyTable) acquireAny(ctx context.Context, keys []Key, waits bool) (*Lock, error) {
	distinct := distinctKeys(keys)
	switch len(distinct) {
	case 0:
		return nil, errNoKeys
	case 1:
		return t.acquire(ctx, distinct[0], waits)
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	r := &request{keys: distinct, states: make([]*keyState, len(distinct)), done: make(chan struct{}, 1)}
	return t.submit(ctx, r, waits)
}

// distinctKeys is keys without those that the database could not tell apart.
func distinctKeys(keys []Key) []Key {
	distinct := make([]Key, 0, len(keys))
	for _, k := range keys {
		if !slices.ContainsFunc(distinct, func(d Key) bool { return d.id() == k.id() }) {
			distinct = append(distinct, k)
		}
	}
	return distinct
}

// submit puts a on the table and waits until it is settled or ctx ends.
func (t *keyTable) submit(ctx context.Context, r *request, waits bool) (*Lock, error) {
	r.ctx, r.waits = ctx, waits
	if waits {
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
	if t.timeout > 0 && !waits {
		timer := time.NewTimer(t.timeout)
		defer timer.Stop()
		timeout = timer.C
	}
	select {
	case <-r.done:
		return r.lock, r.err
	case <-ctx.Done():
		return t.giveUp(r, ended(ctx))
	case <-timeout:
		return t.giveUp(r, nil)
	}
}

// giveUp takes a off the table, unless its verdict has come meanwhile: because
// its context ended with cause, or, if that is nil, because the timeout is used up.
func (t *keyTable) giveUp(r *request, cause error) (*Lock, error) {
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

// waitErrorLocked is why a has waited in vain: the source is away, or will not ask for its
// key; nil if somebody else simply had it.
func (t *keyTable) waitErrorLocked(r *request) error {
	if !r.waits {
		return nil
	}
	if err := t.source.away(r.firstState()); err != nil || t.disputed == nil {
		return err
	}
	for _, k := range r.states {
		if k != nil && t.disputed(k) != nil {
			return t.disputed(k)
		}
		if k != nil && k.full != nil {
			return k.full
		}
	}
	return nil
}

// firstState is an key state that a is on; nil if there is none.
func (r *request) firstState() *keyState {
	for _, k := range r.states {
		if k != nil {
			return k
		}
	}
	return nil
}

// placeLocked answers a from the table where that can be done, and else sees that
// its keys are asked for.
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
	if r.all {
		t.placeAllLocked(r)
		return
	}
	fresh := 0 // key states that nobody asks for yet
	var last *keyState
	for i, key := range r.keys {
		k := t.keys.of(key.id())
		away := t.source.away(k)
		switch {
		case k != nil && k.phase == releasing && len(k.waiters) == 0 && away == nil && t.mayHandOverLocked(k, r, key):
			t.replyLocked(k, nil)
			t.reacquiredLocked(k)
			t.grantLocked(k, r, key)
			return
		case k != nil && r.shared && t.mayJoinLocked(k, key):
			t.grantLocked(k, r, key)
			return
		case k != nil && !r.waits && k.phase == held:
			continue // refused
		case away != nil && !r.waits:
			t.decideLocked(r, nil, away)
			return
		case k == nil:
			k = t.newKeyLocked(key.id())
		case !r.waits && k.mustWait(r):
			continue // refused: others are in line
		}
		if key.print != 0 {
			k.check = key.secretCheck()
		}
		k.waiters = append(k.waiters, r)
		r.states[i] = k
		r.open++
		if k.phase == idle && k.polling && !r.waits { // readers wait in line before one who tries
			k.polling = false
			k.timer.Stop()
		}
		if k.phase == idle && !k.polling {
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

// mustWait reports whether somebody is in line for e whom a, who only tries, may not pass: anybody, but for
// readers by a reader.
func (k *keyState) mustWait(r *request) bool {
	return slices.ContainsFunc(k.waiters, func(other *request) bool { return other.waits && !(other.shared && r.shared) })
}

// waited reports whether somebody is in line for e. Those who only try come
// and go; who waits stays.
func (k *keyState) waited() bool {
	return slices.ContainsFunc(k.waiters, func(r *request) bool { return r.waits })
}
