package worker

import (
	"context"
	"errors"

	"github.com/latchkey-go/latchkey/internal/chaos/history"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// ResultOf returns err in the words of the history. ErrNotExclusive and
// ErrConfig count as a database that does not serve: nothing was granted.
func ResultOf(err error) history.Result {
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return history.GaveUp // also while the database was away
	case errors.Is(err, sqllock.ErrHeld), errors.Is(err, ratelimit.ErrBusy):
		return history.Held
	case errors.Is(err, sqllock.ErrCapacity):
		return history.Capacity
	case errors.Is(err, sqllock.ErrUnavailable), errors.Is(err, sqllock.ErrNotExclusive), errors.Is(err, sqllock.ErrConfig):
		return history.Unavailable
	case errors.Is(err, sqllock.ErrLost), errors.Is(err, sqllock.ErrReleased):
		return history.Lost
	case errors.Is(err, sqllock.ErrFenced):
		return history.Fenced
	case errors.Is(err, sqllock.ErrClosed):
		return history.Closed
	}
	return history.Failed
}
