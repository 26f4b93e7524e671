package queue

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/sqllock"
)

// errCutOff is why a job is given up that was begun as often as it may be, and neither
// done nor failed each time: it may be what kills its workers.
var errCutOff = errors.New("its worker ended in the midst of it, the last time that was allowed")

// run is an attempt at a job in hand.
func (q *Queue) run(ctx context.Context, h *hold) {
	var (
		effect  Effect
		err     error
		outcome = Abandoned
	)
	defer func() { h.giveUp(outcome) }()
	if h.job.Attempt > h.job.MaxAttempts {
		err = errCutOff
	} else {
		effect, err = q.work(ctx, h)
	}
	outcome = q.settle(ctx, h, effect, err)
	if q.options.ended != nil {
		q.options.ended(h.job, outcome)
	}
}

// work does the work, in a context that ends when the job may be somebody else's. A panic
// is an error.
func (q *Queue) work(ctx context.Context, h *hold) (effect Effect, err error) {
	ctx, cancel := h.lock.Bind(context.WithoutCancel(ctx)) // the end of Run lets it finish
	defer cancel()
	ctx, cancelSingle := h.single.Bind(ctx)
	defer cancelSingle()
	kind := q.kinds[h.job.Kind]
	if kind.Timeout > 0 {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeout(ctx, kind.Timeout)
		defer cancelTimeout()
	}
	if h.lock.Err() != nil { // we were slow: it may run elsewhere
		return nil, sqllock.ErrLost
	}
	defer func() {
		if p := recover(); p != nil {
			err = panicked(p)
		}
	}()
	return kind.Work(ctx, h.job)
}

func panicked(value any) error { return fmt.Errorf("panic: %v", value) }
