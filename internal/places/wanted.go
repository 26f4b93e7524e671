// Package places is what packages httpmw and grpcmw share about the places that
// a request needs: one of each limit that counts for it.
//
//	var wanted places.Wanted
//	wanted.Add(perTenant, tenant)
//	wanted.Add(perUser, user)
//	held, err := wanted.Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer held.Unlock()
package places

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// Wanted are the places that a request needs. The zero value has none. A single
// place costs no allocation.
type Wanted struct {
	first ratelimit.Level
	all   []ratelimit.Level // nil until there is a second
}

// Add adds a place of l for id.
func (w *Wanted) Add(l *ratelimit.Limiter, id string) {
	level := ratelimit.Level{Limiter: l, ID: id}
	switch {
	case w.first.Limiter == nil:
		w.first = level
	case w.all == nil:
		w.all = []ratelimit.Level{w.first, level}
	default:
		w.all = append(w.all, level)
	}
}

// Acquire acquires all places or none. Without any it returns the zero Held.
// Its errors are those of [ratelimit.AcquireAll].
func (w *Wanted) Acquire(ctx context.Context) (held Held, err error) {
	switch {
	case w.all != nil:
		held.several, err = ratelimit.AcquireAll(ctx, w.all...)
	case w.first.Limiter != nil:
		held.one, err = w.first.Limiter.Acquire(ctx, w.first.ID)
	}
	return held, err
}

// Limiters returns the limits of which a place is wanted.
func (w *Wanted) Limiters() []*ratelimit.Limiter {
	var all []*ratelimit.Limiter
	for _, level := range w.levels() {
		all = append(all, level.Limiter)
	}
	return all
}

// levels returns all levels of w.
func (w *Wanted) levels() []ratelimit.Level {
	switch {
	case w.all != nil:
		return w.all
	case w.first.Limiter != nil:
		return []ratelimit.Level{w.first}
	}
	return nil
}

// EndedBy returns the limit whose lock has ended ctx, which Bind of held has
// returned. held is what Acquire has returned. If several locks have ended like
// that, as on one connection, it is the limit of the first. Without any it is
// the first limit.
func (w *Wanted) EndedBy(ctx context.Context, held Held) *ratelimit.Limiter {
	cause := context.Cause(ctx)
	for i, lock := range held.several {
		if carries(ctx, lock) && errors.Is(context.Cause(lock.Context()), cause) {
			return w.all[i].Limiter
		}
	}
	return w.first.Limiter
}

// Twice returns a limit of which the request needs a second place for one id,
// or nil. The first is in ctx already, or among those that are wanted.
func (w *Wanted) Twice(ctx context.Context) *ratelimit.Limiter {
	if w.all == nil {
		if w.first.Limiter != nil && inside.Carried(ctx, w.first.Limiter, w.first.ID) {
			return w.first.Limiter
		}
		return nil
	}
	for i, level := range w.all {
		if inside.Carried(ctx, level.Limiter, level.ID) {
			return level.Limiter
		}
		for _, before := range w.all[:i] {
			if before.ID == level.ID && before.Limiter.Namespace() == level.Limiter.Namespace() {
				return level.Limiter
			}
		}
	}
	return nil
}
