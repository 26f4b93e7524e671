package connectmw

import (
	"context"
	"errors"
	"log/slog"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/places"
	"github.com/latchkey-go/latchkey/ratelimit"
)

// An identification is how far the KeyFuncs have come with a call. Each has
// returned before the next is called.
type identification struct {
	wanted places.Wanted
	next   int // the level whose KeyFunc is called next
}

// identify calls the KeyFuncs of call from id.next on. It returns a rejection,
// or needsMessage if a KeyFunc has returned ErrNeedMessage on a stream that has
// no message yet. Then identify goes on with that KeyFunc when it is called
// again.
func (i *Interceptor) identify(ctx context.Context, call Call, id *identification) (needsMessage bool, _ error) {
	for ; id.next < len(i.levels); id.next++ {
		key, err := i.levels[id.next].Key(ctx, call)
		if call.Message == nil && errors.Is(err, ErrNeedMessage) {
			return true, nil
		}
		if rejection := i.identified(ctx, call, id, key, err); rejection != nil {
			return false, rejection
		}
	}
	return false, nil
}

// identified adds to id the place of the next level, whose KeyFunc has returned
// key and err. It returns a rejection, or nil, also for a level that admits the
// call without a lock: by ErrBypass or in a dry run.
func (i *Interceptor) identified(ctx context.Context, call Call, id *identification, key string, err error) error {
	l := i.levels[id.next].Limiter
	if err == nil && key == "" {
		err = ErrNoKey
	}
	switch {
	case err == nil:
		id.wanted.Add(l, key)
		return nil
	case errors.Is(err, ErrBypass):
		return nil
	}
	rejection := i.keyRejection(ctx, l, call, err)
	if inside.Refuse(ctx, l, err) == nil {
		return nil
	}
	return rejection
}

// admit acquires the places that call wants. Without a rejection it is admitted,
// perhaps without a lock: in a dry run, by WithFailOpen or by ErrBypass.
func (i *Interceptor) admit(ctx context.Context, call Call, wanted *places.Wanted) (places.Held, error) {
	if l := wanted.Twice(ctx); l != nil {
		i.report(ctx, call, slog.LevelError, twiceText, named(l), slog.Int("limit", l.Limit()))
	}
	held, err := wanted.Acquire(ctx)
	if err == nil {
		return held, nil
	}
	if errors.Is(err, ratelimit.ErrPolicy) {
		i.report(ctx, call, slog.LevelError, policyText, slog.Any("error", err)) // its text names the limit
	}
	return places.Held{}, i.limiterRejection(ctx, err)
}
