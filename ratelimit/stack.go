package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Level is one of several limits for a request: see [AcquireAll].
type Level struct {
	Limiter *Limiter
	ID      string
}

var (
	errNoLevels  = errors.New("ratelimit: AcquireAll needs at least one Level")
	errSameLevel = fmt.Errorf("%w: the request needs two places of one limit: two levels have the same namespace and id", ErrPolicy)
)

// AcquireAll admits a request on every level, or on none. Locks[i] is the lock
// of levels[i]. It is nil where the level admits without a lock: by
// [WithDryRun] or [WithFailOpen].
//
// Levels of one [sqllock.Session], Memory or shard are acquired in one round
// trip. A level whose reserved places are taken may add one, as with AtMost. Two
// shards of one shard.Locker are an error. Levels of other Lockers are acquired
// one after the other. If one fails, the locks of the others are released.
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
// One id on two levels of one limit is an error that matches [ErrPolicy]: no
// request may need two places of it. Levels are compared by their keys.
// AcquireAll without levels is an error. AcquireAll panics if a Limiter is nil.
func AcquireAll(ctx context.Context, levels ...Level) (sqllock.Locks, error) {
	return acquireAll(ctx, levels, nil)
}

// acquireAll is [inside.AcquireAll]. waits may be nil.
func acquireAll(ctx context.Context, levels []Level, waits func(context.Context)) (sqllock.Locks, error) {
	if len(levels) == 0 {
		return nil, errNoLevels
	}
	for _, level := range levels {
		if level.Limiter == nil {
			panic("ratelimit: AcquireAll needs a *Limiter that is not nil in each Level")
		}
	}
	s := newStack(len(levels))
	s.waits = waits
	for _, level := range levels {
		if err := s.add(ctx, level.Limiter, level.ID); err != nil {
			return nil, err
		}
	}
	if err := s.acquire(ctx); err != nil {
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
	places    []place
	hasWaited bool
	waits     func(context.Context) // is called before the request waits; may be nil
}

// newStack returns a stack for so many levels, whose places never move.
func newStack(levels int) *stack { return &stack{places: make([]place, 0, levels)} }

// add adds a level, unless the request is rejected there without the Locker.
func (s *stack) add(ctx context.Context, l *Limiter, id string) error {
	s.places = append(s.places, place{l: l, id: id, limit: l.most})
	p := &s.places[len(s.places)-1]
	err := p.find(ctx)
	if err == nil && slices.ContainsFunc(s.places[:len(s.places)-1], func(q place) bool { return q.missing() && q.number == p.number }) {
		err = l.explain(errSameLevel)
	}
	if err != nil && !p.pass(ctx, err) {
		return p.reject(ctx, err)
	}
	return nil
}

// acquire acquires a lock of each level, and admits the request.
func (s *stack) acquire(ctx context.Context) error {
	p, err := s.try(ctx)
	for err != nil {
		alone := errors.Is(err, sqllock.ErrHeld)
		if !alone {
			err = p.l.explain(err)
		} else if p, err = s.wait(ctx, p); err == nil || errors.Is(err, sqllock.ErrHeld) {
			continue
		}
		for i := range s.places {
			q := &s.places[i]
			if concerned := q == p || !alone && q.missing() && q.sharesCall(p); concerned && !q.pass(ctx, err) {
				return q.reject(ctx, err)
			}
		}
		p, err = s.try(ctx)
	}
	s.admit(ctx)
	return nil
}

// try acquires the places that are missing, without waiting. If that fails, it
// gives back all places. p is the one that is full, or the first of those that
// were asked for in one call.
func (s *stack) try(ctx context.Context) (p *place, err error) {
	for i := range s.places {
		p = &s.places[i]
		if p.wants(p.slots); !s.hasWaited && p.missing() {
			p.wants(p.withoutOvertaking())
		}
		if p.missing() && len(p.want) == 0 {
			return p, sqllock.ErrHeld // and s has not waited, so it has no place yet
		}
	}
	for i := range s.places {
		for s.places[i].missing() {
			if p, err = s.tryTogether(ctx, s.places[i:]); err == nil {
				break
			}
			if !errors.Is(err, sqllock.ErrHeld) || !p.widen() {
				s.giveBack()
				return p, err
			}
		}
	}
	return nil, nil
}

// sharesCall reports whether one call can acquire both p and q.
func (p *place) sharesCall(q *place) bool { return p.l.groups != nil && p.l.groups == q.l.groups }

// tryTogether acquires the first of places, and in the same call those behind it
// that are missing and share it. It acquires all or none.
func (s *stack) tryTogether(ctx context.Context, places []place) (p *place, err error) {
	p = &places[0]
	var together []*place
	var groups [][]sqllock.Key
	for i := range places {
		if q := &places[i]; len(places) > 1 && q.missing() && q.sharesCall(p) {
			together, groups = append(together, q), append(groups, q.want)
		}
	}
	if len(together) < 2 {
		p.lock, err = p.l.try(ctx, p.want)
		return p, err
	}
	locks, err := inside.TryEach[sqllock.Key, sqllock.Locks](ctx, p.l.groups, groups)
	var full *inside.FullError
	if errors.As(err, &full) {
		return together[full.Level], err
	}
	for i, lock := range locks {
		together[i].lock = lock
	}
	return p, err
}

// admit begins the hold of each lock, and counts the request on each level. The
// Observers get the admission first, as the lock may have ended already. If one
// of them panics, admit releases all locks, since the caller gets none.
func (s *stack) admit(ctx context.Context) {
	told := false
	defer func() {
		if !told {
			s.giveBack()
		}
	}()
	for i := range s.places {
		p := &s.places[i]
		if p.lock == nil {
			p.record(ctx, p.instead, p.err)
			continue
		}
		if p.l.dryRun {
			inside.Detach(p.lock) // no request must end with it
		}
		p.tell(ctx, Admitted, nil)
		p.l.begin(ctx, p)
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
	_ = locks.Unlock()
}
