package ratelimit

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An eachLocker acquires one key of each of several groups in one call, or
// none. [*sqllock.Session] and [*sqllock.Memory] are such Lockers.
type eachLocker interface {
	TryEach(ctx context.Context, groups [][]sqllock.Key) (sqllock.Locks, error)
}

// try acquires the places that are missing, without waiting. If that fails, it
// gives back all places, and returns those that the error concerns: the one that
// is full, or those that one call has asked for.
func (s *stack) try(ctx context.Context) (failed []*place, err error) {
	for i := range s.places {
		p := &s.places[i]
		if !p.missing() {
			continue
		}
		if p.now = p.slots; s.last == nil {
			p.now = p.mayTry()
		}
		if p.now.none() {
			s.giveBack()
			return []*place{p}, sqllock.ErrHeld
		}
	}
	for i := range s.places {
		if !s.places[i].missing() {
			continue
		}
		together := s.together(i)
		if full, err := tryTogether(ctx, together); err != nil {
			s.giveBack()
			if full != nil {
				together = []*place{full}
			}
			return together, err
		}
	}
	return nil, nil
}

// together returns the missing places from i on that one call can acquire.
func (s *stack) together(i int) []*place {
	first := &s.places[i]
	places := []*place{first}
	if first.l.each == nil {
		return places
	}
	for j := i + 1; j < len(s.places); j++ {
		if p := &s.places[j]; p.missing() && p.l.each == first.l.each {
			places = append(places, p)
		}
	}
	return places
}

// tryTogether acquires these places in one call, or none. They share a Locker.
// If one of them is full, tryTogether returns it.
func tryTogether(ctx context.Context, places []*place) (full *place, err error) {
	first := places[0]
	if len(places) == 1 {
		first.lock, err = first.l.try(ctx, first.now)
		return nil, err
	}
	groups := make([][]sqllock.Key, len(places))
	for i, p := range places {
		groups[i] = p.now.keys()
	}
	locks, err := first.l.each.TryEach(ctx, groups)
	var group *sqllock.GroupError
	if errors.As(err, &group) {
		return places[group.Group], err
	}
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		p.lock = locks[i]
	}
	return nil, nil
}
