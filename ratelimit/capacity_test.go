package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// fullLocker never has room for a key, for which its Lock waits.
type fullLocker struct{ sqllock.Locker }

func (fullLocker) Lock(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", sqllock.ErrCapacity, ctx.Err())
}

func (fullLocker) TryLock(context.Context, sqllock.Key) (*sqllock.Lock, error) {
	return nil, sqllock.ErrHeld
}

// A wait that ends without room for another lock is not reported as busy.
func TestWaitWithoutRoom(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(fullLocker{}, "export", ratelimit.WithWait(time.Millisecond, 1))
	_, err := l.Acquire(t.Context(), "ada")
	if !errors.Is(err, sqllock.ErrCapacity) || errors.Is(err, ratelimit.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire: %v, want ErrCapacity alone", err)
	}
}
