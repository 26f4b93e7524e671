package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// ended returns the error of a call whose ctx has ended: ctx's own, after ErrLost
// if the loss of a lock has ended ctx.
func ended(ctx context.Context) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); errors.Is(cause, ErrLost) || errors.Is(cause, ErrClosed) { // of the lock's Session
		return fmt.Errorf("%w: %w", ErrLost, err)
	}
	return err
}

// inContext returns err, of a call on a transaction, with what has ended ctx: of
// that some drivers report only that the server has cancelled the statement. The
// loss of the lock that ctx carries is part of the error too, if a context of
// the lock has ended the transaction and not the call.
func inContext(ctx context.Context, err error) error {
	var (
		ofContext = errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
		decided   = slices.ContainsFunc([]error{ErrLost, ErrReleased, ErrFenced, ErrHeld}, func(sentinel error) bool { return errors.Is(err, sentinel) })
	)
	switch {
	case err == nil, decided:
		return err
	case ctx.Err() != nil && ofContext:
		return ended(ctx)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ended(ctx), err)
	case ofContext, errors.Is(err, sql.ErrTxDone):
		if lock, ok := FromContext(ctx); ok && errors.Is(lock.Err(), ErrLost) {
			return fmt.Errorf("%w: %w", ErrLost, err)
		}
	}
	return err
}
