package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/sqllock"
)

// TryAny acquires one of keys that is free, without waiting. It asks shard by
// shard, in the order of the first key of each, until one grants. A shard gets
// one call for all its keys, or one for each key if its Locker has no TryAny. A
// Session whose database does not respond costs at most a second before the
// next shard is asked, and no time once it is known to be away.
//
// TryAny returns ErrHeld only if every shard has returned it. Otherwise the
// error matches those of the other shards, with one exception. ErrUnavailable
// is left out next to an error that waiting does not mend: ErrCapacity,
// ErrNotExclusive, ErrConfig or ErrClosed. A caller that fails open on
// ErrUnavailable does not fail open on those.
func (s *Locker) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	parts := s.split(keys)
	if len(parts) == 0 {
		return nil, errNoKeys
	}
	errs := make([]error, 0, len(parts))
	for _, p := range parts {
		lock, err := p.tryAny(ctx, p.keys)
		if err == nil {
			return lock, nil
		}
		errs = append(errs, err)
	}
	return nil, refusal(errs)
}

// LockAny waits until one of keys is free, on all their shards at once. For a
// moment it may hold a second key, and releases it before it returns. If a
// database stops responding at that moment, the release takes about a second.
//
// A shard that fails does not keep the others from granting. If ctx ends, the
// error matches that of ctx. It then also matches ErrUnavailable if one of the
// databases was away, or an error that waiting does not mend (see TryAny).
func (s *Locker) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	var waits []wait
	for _, p := range s.split(keys) {
		if p.several != nil {
			waits = append(waits, func(ctx context.Context) (*sqllock.Lock, error) { return p.several.LockAny(ctx, p.keys...) })
			continue
		}
		for _, key := range p.keys {
			waits = append(waits, func(ctx context.Context) (*sqllock.Lock, error) { return p.Lock(ctx, key) })
		}
	}
	return firstOf(ctx, waits)
}

// A wait returns when it has a lock, or cannot get one any more.
type wait func(ctx context.Context) (*sqllock.Lock, error)

// firstOf waits until one of waits has a lock. When it returns, no other one has a
// lock or gets one later.
func firstOf(ctx context.Context, waits []wait) (*sqllock.Lock, error) {
	switch len(waits) {
	case 0:
		return nil, errNoKeys
	case 1:
		return waits[0](ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		first atomic.Pointer[sqllock.Lock]
		errs  = make([]error, len(waits))
	)
	for i, w := range waits {
		wg.Go(func() {
			lock, err := w(ctx)
			switch {
			case err != nil:
				errs[i] = err
			case first.CompareAndSwap(nil, lock):
				cancel()
			default:
				_ = lock.Unlock() // after an error it needs no more care
			}
		})
	}
	wg.Wait()
	if lock := first.Load(); lock != nil {
		return lock, nil
	}
	return nil, refusal(errs)
}

var errNoKeys = errors.New("shard: TryAny and LockAny need a key at least")

// A part is a shard and the keys of it that a call asks for, at least one.
type part struct {
	*member
	keys []sqllock.Key
}

// tryAny acquires one of keys that is free, without waiting.
func (m *member) tryAny(ctx context.Context, keys []sqllock.Key) (lock *sqllock.Lock, err error) {
	if m.several != nil {
		return m.several.TryAny(ctx, keys...)
	}
	for _, key := range keys {
		if lock, err = m.TryLock(ctx, key); !errors.Is(err, sqllock.ErrHeld) {
			break
		}
	}
	return lock, err
}

// split sorts keys by shard. The shards are in the order of the first key of
// each, and the keys of a shard are in the caller's order, each once.
func (s *Locker) split(keys []sqllock.Key) []part {
	var parts []part
	for i, key := range keys {
		if slices.ContainsFunc(keys[:i], func(k sqllock.Key) bool { return idOf(k) == idOf(key) }) {
			continue
		}
		of := &s.shards[s.Index(key)]
		i := slices.IndexFunc(parts, func(p part) bool { return p.member == of })
		if i < 0 {
			i = len(parts)
			parts = append(parts, part{member: of})
		}
		parts[i].keys = append(parts[i].keys, key)
	}
	return parts
}

// refusal makes one error of those of several shards, none of which has
// granted. It has one line.
func refusal(errs []error) error {
	permanent := slices.ContainsFunc(errs, isPermanent)
	var told error
	for _, err := range errs {
		switch {
		case errors.Is(err, sqllock.ErrHeld):
		case permanent && errors.Is(err, sqllock.ErrUnavailable) && !isPermanent(err):
		case told == nil:
			told = err
		case !errors.Is(told, err):
			told = fmt.Errorf("%w; %w", told, err)
		}
	}
	return cmp.Or(told, sqllock.ErrHeld)
}

// isPermanent reports whether waiting does not mend the cause of err.
func isPermanent(err error) bool {
	return errors.Is(err, sqllock.ErrCapacity) || errors.Is(err, sqllock.ErrNotExclusive) || errors.Is(err, sqllock.ErrConfig) || errors.Is(err, sqllock.ErrClosed)
}
