package shard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/sqllock"
)

// TryAny takes a free one of keys. It asks shard by shard, in the order of the
// first key of each, in one call for all keys of a shard (one by one if the
// shard's Locker has no TryAny), until one grants. A Session whose database does
// not answer costs a second at the most before the next is asked, and nothing
// once that is known.
//
// It fails with ErrHeld only if every shard has said so. If nobody grants and
// some could not tell, the error matches theirs: ErrUnavailable, but not
// beside an error that waiting does not mend (ErrCapacity, ErrNotExclusive,
// ErrClosed), so that who fails open on ErrUnavailable does not on those.
func (s *Locker) TryAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	parts := s.split(keys)
	if len(parts) == 0 {
		return nil, errNoKeys
	}
	errs := make([]error, 0, len(parts))
	for _, p := range parts {
		lock, err := p.try(ctx)
		if err == nil {
			return lock, nil
		}
		errs = append(errs, err)
	}
	return nil, refusal(errs)
}

// LockAny waits until one of keys is free, on all their shards at once. For a
// moment it may hold a second key, which it gives back before it returns: if a
// database stops answering just then, that takes about a second.
//
// A shard that fails does not keep the others from granting. The error matches
// ctx's if ctx ended, and then ErrUnavailable too if one of the databases was
// away, or what goes before that (see TryAny).
func (s *Locker) LockAny(ctx context.Context, keys ...sqllock.Key) (*sqllock.Lock, error) {
	var waits []part
	for _, p := range s.split(keys) {
		waits = append(waits, p.waits()...)
	}
	switch len(waits) {
	case 0:
		return nil, errNoKeys
	case 1:
		return waits[0].wait(ctx)
	}
	return firstOf(ctx, waits)
}

// firstOf waits for all of waits, which are two or more, until one has a lock.
// When it returns no other has or will have.
func firstOf(ctx context.Context, waits []part) (*sqllock.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		first atomic.Pointer[sqllock.Lock]
		errs  = make([]error, len(waits))
	)
	for i, p := range waits {
		wg.Go(func() {
			lock, err := p.wait(ctx)
			switch {
			case err != nil:
				errs[i] = err
			case first.CompareAndSwap(nil, lock):
				cancel()
			default:
				_ = lock.Unlock() // without an answer it needs no more care
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

// A part is the keys of one shard that a call asks for, at least one.
type part struct {
	*member
	keys []sqllock.Key
}

// split is keys by shard, each in order, the shards in the order of the first
// key of each.
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

// try takes the first free key of p.
func (p part) try(ctx context.Context) (*sqllock.Lock, error) {
	if p.several != nil {
		return p.several.TryAny(ctx, p.keys...)
	}
	var err error
	for _, key := range p.keys {
		var lock *sqllock.Lock
		lock, err = p.TryLock(ctx, key)
		if !errors.Is(err, sqllock.ErrHeld) {
			return lock, err
		}
	}
	return nil, err
}

// waits is p in parts that can be waited for: each key by itself if the shard's
// Locker waits for one key only.
func (p part) waits() []part {
	if p.several != nil {
		return []part{p}
	}
	each := make([]part, len(p.keys))
	for i := range p.keys {
		each[i] = part{p.member, p.keys[i : i+1]}
	}
	return each
}

// wait waits for a key of p, which is one of waits.
func (p part) wait(ctx context.Context) (*sqllock.Lock, error) {
	if p.several != nil {
		return p.several.LockAny(ctx, p.keys...)
	}
	return p.Lock(ctx, p.keys[0])
}

// refusal is the answers of several shards, none of which has granted, as one.
func refusal(errs []error) error {
	lasts := slices.ContainsFunc(errs, isLasting)
	var told []error
	for _, err := range errs {
		switch {
		case errors.Is(err, sqllock.ErrHeld):
		case lasts && errors.Is(err, sqllock.ErrUnavailable) && !isLasting(err):
		case slices.ContainsFunc(told, func(t error) bool { return errors.Is(t, err) }):
		default:
			told = append(told, err)
		}
	}
	switch len(told) {
	case 0:
		return sqllock.ErrHeld
	case 1:
		return told[0]
	}
	return &refusals{told}
}

// isLasting reports whether err tells of what waiting does not mend.
func isLasting(err error) bool {
	return errors.Is(err, sqllock.ErrCapacity) || errors.Is(err, sqllock.ErrNotExclusive) || errors.Is(err, sqllock.ErrConfig) || errors.Is(err, sqllock.ErrClosed)
}

// refusals is several errors on one line.
type refusals struct{ errs []error }

func (r *refusals) Error() string {
	texts := make([]string, len(r.errs))
	for i, err := range r.errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes errors.Is and errors.As look at each.
func (r *refusals) Unwrap() []error { return r.errs }
