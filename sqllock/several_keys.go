package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Requests for several keys at once. A request for one of them is in the queue
// of each key, and the first grant decides it. A request for all of them is a
// set: it is granted all of its keys in one statement, or none.

// acquireAny acquires the first free one of keys, or waits for one.
func (t *keyTable) acquireAny(ctx context.Context, keys []Key, w want) (*Lock, error) {
	distinct := distinctKeys(keys)
	switch len(distinct) {
	case 0:
		return nil, t.fail(errNoKeys, w)
	case 1:
		return t.acquire(ctx, distinct[0], w)
	}
	if ctx.Err() != nil {
		return nil, t.fail(ended(ctx), w)
	}
	return t.submit(newRequest(ctx, distinct, w))
}

// distinctKeys returns keys without those that are equal in the database. It
// keeps their order, which is the caller's preference.
func distinctKeys(keys []Key) []Key {
	distinct := make([]Key, 0, len(keys))
	if len(keys) > narrowGroup {
		var seen [2]numberSet // by key space
		for i, k := range keys {
			set := &seen[k.space]
			if set.slots == nil {
				set.reset(len(keys))
			}
			if set.add(k.number, i) == i {
				distinct = append(distinct, k)
			}
		}
		return distinct
	}
	for _, k := range keys {
		if !slices.ContainsFunc(distinct, func(d Key) bool { return d.id() == k.id() }) {
			distinct = append(distinct, k)
		}
	}
	return distinct
}

// acquireAll acquires all of keys or none, without waiting. It sorts them,
// since one order of the keys in all calls keeps sets from rejecting each
// other.
func (t *keyTable) acquireAll(ctx context.Context, keys []Key, w want) (Locks, error) {
	distinct := slices.Clone(keys)
	slices.SortFunc(distinct, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.number, b.number))
	})
	distinct = slices.CompactFunc(distinct, func(a, b Key) bool { return a.id() == b.id() })
	switch len(distinct) {
	case 0:
		return nil, t.fail(errNoKeys, w)
	case 1:
		lock, err := t.acquire(ctx, distinct[0], want{attempt: w.attempt})
		if err != nil {
			return nil, err
		}
		return Locks{lock}, nil
	}
	if ctx.Err() != nil {
		return nil, t.fail(ended(ctx), w)
	}
	r := newRequest(ctx, distinct, w)
	_, err := t.submit(r)
	return r.locks, err
}

// awaitAll acquires all of keys, and repeats that until it succeeds or ctx
// ends. It pauses in between, and holds nothing meanwhile.
func (t *keyTable) awaitAll(ctx context.Context, keys []Key) (locks Locks, err error) {
	done := t.noteSet(ctx, keys)
	defer func() { done(err) }()
	for n := 1; ; n++ {
		locks, err = t.acquireAll(ctx, keys, want{all: true, attempt: true})
		pause := jitter(pollAway)
		switch {
		case err == nil, errors.Is(err, ErrClosed), errors.Is(err, errManyKeys), errors.Is(err, errNoKeys):
			return locks, err
		case errors.Is(err, ErrHeld):
			pause = pollPause(n)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			if isUnavailable(err) || errors.Is(err, ErrNotExclusive) || errors.Is(err, ErrConfig) || errors.Is(err, ErrCapacity) {
				return nil, fmt.Errorf("%w: %w", err, ended(ctx))
			}
			return nil, ended(ctx)
		}
	}
}

// noteSet counts a caller that waits for keys, and shows it to the registry,
// until done is called with its result.
func (t *keyTable) noteSet(ctx context.Context, keys []Key) (done func(error)) {
	r := &request{want: want{all: true}, ctx: ctx, keys: keys}
	t.noteWait(r)
	t.mu.Lock()
	t.waiting++
	if t.registers {
		t.waitingSets[r] = struct{}{}
	}
	t.mu.Unlock()
	return func(err error) {
		t.mu.Lock()
		t.calledBy.count(err)
		t.waiting--
		delete(t.waitingSets, r)
		t.mu.Unlock()
	}
}

// placeAllLocked is placeLocked for a request that wants all of its keys.
//
// Invariant: it requests none before it can request all. Until then it is among
// the waiters of each. The response to a key that another request waits for
// either denies r or lets it go on.
func (t *keyTable) placeAllLocked(r *request) {
	for i, key := range r.keys {
		k := t.keys.of(key.id())
		if k != nil && (k.phase != idle || k.waited()) {
			if away := t.source.away(k); away != nil {
				t.decideLocked(r, nil, away)
				return
			}
			if k.phase == held || k.waited() {
				t.decideLocked(r, nil, ErrHeld)
				return
			}
		}
		t.lineUpLocked(r, i, k)
	}
	if r.ready() {
		t.source.takeGroup(r)
	}
}

// minKeys returns how many locks r brings if it is granted.
func (r *request) minKeys() int {
	if r.all {
		return len(r.keys)
	}
	return 1
}

// fairShare returns those keys of r that one statement should request. It takes
// the keys that no other statement requests. Where several calls try for the
// same keys, it takes a fair part of them. For a set it returns all or none.
func (r *request) fairShare() []*keyState {
	var states []*keyState
	if r.all {
		if r.ready() {
			states = slices.Clone(r.states)
		}
		return states
	}
	quota := len(r.keys)
	for _, k := range r.states {
		if k == nil || k.phase != idle || k.polling {
			continue
		}
		if k.key.Space != dialect.Bigint { // the groups of a batch are of the bigint space
			if len(states) == 0 {
				states = append(states, k)
			}
			break
		}
		if len(states) == 0 && !r.waits {
			quota = (len(r.keys) + len(k.waiters) - 1) / len(k.waiters)
		}
		if len(states) == quota {
			break
		}
		states = append(states, k)
	}
	return states
}
