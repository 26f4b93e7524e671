package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// silent is a Locker whose database does not respond.
type silent struct {
	sqllock.Locker
}

func (s *silent) TryLock(ctx context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", sqllock.ErrUnavailable, ctx.Err())
}

// A wait that ends while the database of another level is away is no rejection
// by the level that was waited for, which had a place.
func TestWaitEndsWhileAnotherLevelIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := sqllock.NewMemory()
		first := ratelimit.OneAtATime(mem, "first", ratelimit.WithWait(time.Minute, 10))
		second := ratelimit.OneAtATime(&silent{mem}, "second")
		held, err := first.Acquire(t.Context(), "id")
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = held.Unlock() })
		_, err = ratelimit.AcquireAll(t.Context(), ratelimit.Level{Limiter: first, ID: "id"}, ratelimit.Level{Limiter: second, ID: "id"})
		if !errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, ratelimit.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := second.Stats().Requests[ratelimit.Failed]; n != 1 {
			t.Error("not a rejection by the level that is away")
		}
		if lock, err := first.Acquire(t.Context(), "id"); err != nil {
			t.Error("a place is kept:", err)
		} else {
			_ = lock.Unlock()
		}
	})
}
