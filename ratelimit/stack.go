package ratelimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// A Level is one of several limits for a request: see [AcquireAll].
type Level struct {
	Limiter *Limiter
	ID      string
}

var (
	errNoLevels  = errors.New("ratelimit: AcquireAll needs at least one Level")
	errSameLevel = fmt.Errorf("%w: two levels have the same limit and id", ErrBadID)
)

// AcquireAll admits a request on every level, or on none. Locks[i] is the lock
// of levels[i]. It is nil where the level admits without a lock: by
// [WithDryRun] or [WithFailOpen].
//
// Levels that share a [sqllock.Session], or a Memory, are acquired in one round
// trip. Levels of other Lockers are acquired one after the other, in the order
// of levels. If one of them fails, the locks of the others are released.
//
// The errors are those of [Limiter.Acquire]. A [*BusyError] has the namespace of
// the level that was full. The policy of each Limiter applies to its level:
//
//   - A level with [WithWait] is waited for. While the request waits it holds
//     nothing. Its waits for one level last at most as long as that WithWait
//     allows, in total.
//   - A level in a dry run never rejects the request.
//   - While a database is away, the request is admitted if each level without a
//     lock fails open.
//
// An admitted request counts once on each level. A rejected one counts only on
// the level that has decided. If an error concerns several levels of one Locker,
// that is the first of them that does not admit without a lock.
//
// One id on two levels is an error that matches [ErrBadID]: the request would
// need two places of one limit. Levels are compared by their keys. AcquireAll
// without levels is an error. AcquireAll panics if a Limiter is nil.
func AcquireAll(ctx context.Context, levels ...Level) (sqllock.Locks, error) {
	if len(levels) == 0 {
		return nil, errNoLevels
	}
	for _, level := range levels {
		if level.Limiter == nil {
			panic("ratelimit: AcquireAll needs a *Limiter that is not nil in each Level")
		}
	}
	s := stack{places: make([]place, len(levels))}
	for i, level := range levels {
		p := &s.places[i]
		var err error
		if *p, err = level.Limiter.newPlace(ctx, level.ID); err == nil && s.has(p.number, i) {
			err = errSameLevel
		}
		if err != nil && !p.pass(ctx, err) {
			return nil, p.reject(ctx, err)
		}
	}
	if err := s.acquire(ctx, nil); err != nil {
		return nil, err
	}
	locks := make(sqllock.Locks, len(levels))
	for i := range locks {
		locks[i] = s.places[i].lock
	}
	return locks, nil
}

// A stack is a request for a place on each of several levels. A single limit is
// a stack of one.
//
// Invariant: a request that waits holds no lock of any level.
type stack struct {
	places []place
	last   *place // on which the request has waited; nil: it has not
}

// has reports whether one of the first n places is for the id with this number.
func (s *stack) has(number int64, n int) bool {
	for i := range n {
		if p := &s.places[i]; p.missing() && p.number == number {
			return true
		}
	}
	return false
}

// acquire acquires a lock of each place that is missing, and admits the
// request. full is a place that has just been found full, or nil.
func (s *stack) acquire(ctx context.Context, full *place) error {
	var failed []*place
	var err error = sqllock.ErrHeld
	for {
		if full == nil {
			if failed, err = s.try(ctx); err == nil {
				s.admit(ctx)
				return nil
			}
		} else {
			failed, full = []*place{full}, nil
		}
		if errors.Is(err, sqllock.ErrHeld) {
			if full, err = s.wait(ctx, failed[0]); err == nil {
				err = sqllock.ErrHeld // of full
				continue
			}
			if full != nil {
				failed, full = []*place{full}, nil
			}
		} else {
			err = failed[0].l.explain(err)
		}
		for _, p := range failed {
			if !p.pass(ctx, err) {
				s.giveBack()
				return p.reject(ctx, err)
			}
		}
	}
}

// admit begins the hold of each lock, and counts the request on each level. If
// an Observer panics, admit releases all locks, since the caller gets none.
func (s *stack) admit(ctx context.Context) {
	told := false
	defer func() {
		if !told {
			s.giveBack()
		}
	}()
	for i := range s.places {
		p := &s.places[i]
		if p.lock != nil {
			p.l.admit(ctx, p)
		} else {
			p.count(ctx, p.instead, p.err)
		}
	}
	told = true
}

// giveBack releases all locks.
func (s *stack) giveBack() {
	var locks sqllock.Locks
	for i := range s.places {
		if p := &s.places[i]; p.lock != nil {
			locks = append(locks, p.lock)
			p.lock = nil
		}
	}
	switch len(locks) {
	case 0:
	case 1:
		_ = locks[0].Unlock()
	default:
		_ = locks.Unlock()
	}
}
