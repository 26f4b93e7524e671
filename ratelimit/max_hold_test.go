package ratelimit_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// The context of the work ends. The lock stays held until the work has stopped.
func TestWithMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(5*time.Second))
		lock := must(t, l, "ada")
		bound, cancel := lock.Bind(t.Context())
		defer cancel()

		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		if bound.Err() != nil || lock.Context().Err() != nil {
			t.Fatal("ended early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for name, ctx := range map[string]context.Context{"Bind": bound, "Context": lock.Context()} {
			if cause := context.Cause(ctx); cause != ratelimit.ErrMaxHold {
				t.Errorf("%s: cause %v, want ErrMaxHold", name, cause)
			}
		}
		if err := lock.Err(); err != nil {
			t.Errorf("Err %v: the lock should still be held", err)
		}
		if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
			t.Errorf("got %v, want ErrBusy until the work has stopped", err)
		}
		unlock(t, lock)
		unlock(t, must(t, l, "ada"))
	})
}

// Work that goes on after its Unlock is not stopped, in whichever context. No
// timer stays behind, or the bubble would not end.
func TestWithMaxHoldInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(time.Hour))
		lock := must(t, l, "ada")
		bound, cancel := lock.Bind(t.Context())
		defer cancel()
		work := lock.Context()
		unlock(t, lock)
		after, cancel := lock.Bind(t.Context())
		defer cancel()
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		late, cancel := lock.Bind(t.Context())
		defer cancel()
		for name, ctx := range map[string]context.Context{"before": bound, "after": after, "late": late} {
			if ctx.Err() != nil {
				t.Errorf("bound %s Unlock: ended with %v, though the lock is not held", name, context.Cause(ctx))
			}
		}
		if cause := context.Cause(work); cause != sqllock.ErrReleased {
			t.Errorf("cause %v, want ErrReleased", cause)
		}
	})
}

// A dry run ends no work.
func TestWithMaxHoldDryRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(time.Second), ratelimit.WithDryRun())
		lock := must(t, l, "ada")
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := lock.Context().Err(); err != nil {
			t.Errorf("the work ended: %v", err)
		}
	})
}
