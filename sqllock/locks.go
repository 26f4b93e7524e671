package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Locks are locks that were acquired together, by [Session.TryLockAll] or LockAll.
// There is one for each key, in the order of the keys' numbers. This order is the
// same for every caller, so use it to call [Fence] for all of them. Keys that are
// equal in the database have one lock.
//
// Each lock can also be used and released separately. The methods are safe for
// concurrent use. Those of a nil Locks do nothing: there is no lock to lose.
type Locks []*Lock

// Err returns nil while all locks are certainly held, by [Lock.Err]. Otherwise it
// returns the error of the first that is not.
func (ls Locks) Err() error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Bind returns ctx with all locks in it, ended by the loss of any: [Lock.Bind] of
// each, one in the other. [FromContext] without keys returns the last of them.
func (ls Locks) Bind(ctx context.Context) (bound context.Context, cancel context.CancelFunc) {
	if len(ls) == 0 {
		return context.WithCancel(ctx)
	}
	last := len(ls) - 1
	outer, cancelOuter := ls[:last].Bind(ctx)
	bound, unbind := ls[last].Bind(outer)
	return bound, func() { unbind(); cancelOuter() }
}

// Unlock releases all locks at the same time. It waits as long as [Lock.Unlock]
// does, and joins the errors of all.
func (ls Locks) Unlock() error {
	errs := make([]error, len(ls))
	var wg sync.WaitGroup
	for i, l := range ls {
		wg.Go(func() { errs[i] = l.Unlock() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// DoAll is [Do] for a set of keys: TryLockAll, fn, Unlock. The context of fn is
// ctx with all the locks in it, and ends when any of them is lost. The lock of
// one of the keys is FromContext(ctx, key).
//
// It returns the error of TryLockAll, or else that of fn, joined by ErrLost if a
// lock was lost before fn returned. The keys become free when fn panics, too.
//
// l is a [Session] or a [Memory].
func DoAll(ctx context.Context, l interface {
	TryLockAll(ctx context.Context, keys ...Key) (Locks, error)
}, keys []Key, fn func(context.Context) error,
) error {
	locks, err := l.TryLockAll(ctx, keys...)
	if err != nil {
		return err
	}
	return underLock(ctx, locks, fn)
}

// acquireAll takes all of keys or none. It does not wait.
func (t *keyTable) acquireAll(ctx context.Context, keys []Key) (Locks, error) {
	distinct := slices.Clone(keys)
	slices.SortFunc(distinct, func(a, b Key) int {
		return cmp.Or(cmp.Compare(a.space, b.space), cmp.Compare(a.number, b.number))
	})
	distinct = slices.CompactFunc(distinct, func(a, b Key) bool { return a.id() == b.id() })
	switch len(distinct) {
	case 0:
		return nil, errNoKeys
	case 1:
		lock, err := t.acquire(ctx, distinct[0], want{})
		if err != nil {
			return nil, err
		}
		return Locks{lock}, nil
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	r := newRequest(ctx, distinct, want{all: true})
	_, err := t.submit(r)
	return r.locks, err
}

// awaitAll takes all of keys, and waits until it can.
func (t *keyTable) awaitAll(ctx context.Context, keys []Key) (Locks, error) {
	defer t.noteSet(ctx, keys)()
	for n := 1; ; n++ {
		locks, err := t.acquireAll(ctx, keys)
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

// noteSet notes that a caller waits for keys, until done is called.
func (t *keyTable) noteSet(ctx context.Context, keys []Key) (done func()) {
	r := &request{want: want{all: true}, ctx: ctx, keys: keys}
	t.noteWait(r)
	t.mu.Lock()
	t.waiting++
	if t.registers {
		t.waitingSets[r] = struct{}{}
	}
	t.mu.Unlock()
	return func() {
		t.mu.Lock()
		t.waiting--
		delete(t.waitingSets, r)
		t.mu.Unlock()
	}
}

// placeAllLocked is placeLocked for a request that wants all of its keys.
//
// Invariant: it requests none before it can request all. Until then it stands in
// line for each. The answer to a key that another request is after either denies
// it or lets it go on.
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

// ready reports whether no statement requests any of r's keys, and all may be
// requested now.
func (r *request) ready() bool {
	return !slices.ContainsFunc(r.states, func(k *keyState) bool { return k == nil || k.phase != idle || k.polling })
}
