package admission

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A Request is the places that a request needs: one of each limit that counts
// for it. The zero value has none. It must not be copied.
type Request struct {
	levels []ratelimit.Level
	memory [3]ratelimit.Level // of levels: most requests cost no allocation
	next   int                // the level whose KeyFunc is called next
}

func (r *Request) add(l *ratelimit.Limiter, id string) {
	if r.levels == nil {
		r.levels = r.memory[:0]
	}
	r.levels = append(r.levels, ratelimit.Level{Limiter: l, ID: id})
}

// acquire is [Gate.Acquire]. Without any place it returns the zero Held.
func (r *Request) acquire(ctx context.Context, waits func(context.Context)) (held Held, err error) {
	switch {
	case len(r.levels) == 0:
	case waits != nil:
		held.Locks, err = inside.AcquireAll[ratelimit.Level, sqllock.Locks](ctx, r.levels[0].Limiter, r.levels, waits)
	case len(r.levels) == 1:
		var lock *sqllock.Lock
		if lock, err = r.levels[0].Limiter.Acquire(ctx, r.levels[0].ID); lock != nil {
			held.Locks = sqllock.Locks{lock}
		}
	default:
		held.Locks, err = ratelimit.AcquireAll(ctx, r.levels...)
	}
	return held, err
}

// carried returns a limit of which ctx carries a lock for the id of r already,
// or nil.
func (r *Request) carried(ctx context.Context) *ratelimit.Limiter {
	for _, level := range r.levels {
		if inside.Carried(ctx, level.Limiter, level.ID) {
			return level.Limiter
		}
	}
	return nil
}

// EndedBy returns the limit whose lock, one of held, has ended ctx, to which
// held is bound, or nil. If several have ended like that, as on one connection,
// it is the limit of the first.
func (r *Request) EndedBy(ctx context.Context, held Held) *ratelimit.Limiter {
	cause := context.Cause(ctx)
	for i, lock := range held.Locks {
		if carries(ctx, lock) && errors.Is(context.Cause(lock.Context()), cause) {
			return r.levels[i].Limiter
		}
	}
	return nil
}
