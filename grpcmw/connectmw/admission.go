package connectmw

import (
	"context"
	"errors"
	"log/slog"

	"github.com/latchkey-go/latchkey/sqllock"
)

// An answer is what a KeyFunc has returned.
type answer struct {
	id  string
	err error
}

func (a answer) needMessage() bool { return errors.Is(a.err, ErrNeedMessage) }

// ask asks the KeyFunc about call.
func (i *Interceptor) ask(ctx context.Context, call Call) answer {
	id, err := i.level.key(ctx, call)
	if err == nil && id == "" {
		err = ErrNoKey
	}
	return answer{id, err}
}

// admit acquires the lock for a call whose KeyFunc has returned a. It returns a
// rejection, or a lock. Both are nil for a call that is admitted without a
// lock: in a dry run, by WithFailOpen or by ErrBypass.
func (i *Interceptor) admit(ctx context.Context, call Call, a answer) (sqllock.Locks, error) {
	limiter := i.level.limiter
	switch {
	case errors.Is(a.err, ErrBypass):
		return nil, nil
	case a.err != nil:
		rejected := i.keyRejection(ctx, call, a.err)
		if limiter.Refuse(ctx, a.err) == nil {
			return nil, nil
		}
		return nil, rejected
	}
	if limiter.Carried(ctx, a.id) {
		i.report(ctx, limiter, call, slog.LevelError, twiceText, slog.Int("limit", limiter.Limit()))
	}
	lock, err := limiter.Acquire(ctx, a.id)
	if err != nil {
		return nil, i.limiterRejection(ctx, err)
	}
	return sqllock.Locks{lock}, nil
}
