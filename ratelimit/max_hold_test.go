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
// Nothing ends after an Unlock in time, or in a dry run.
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

		inTime := must(t, l, "ada")
		late, stop := inTime.Bind(t.Context())
		defer stop()
		unlock(t, inTime)
		dry := must(t, ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithMaxHold(time.Second), ratelimit.WithDryRun()), "ada")
		without := must(t, ratelimit.OneAtATime(sqllock.NewMemory(), "export"), "ada")
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := without.Context().Err(); err != nil {
			t.Errorf("without WithMaxHold the work was ended: %v", err)
		}
		if late.Err() != nil {
			t.Errorf("work that goes on after its Unlock was ended with %v", context.Cause(late))
		}
		if err := dry.Context().Err(); err != nil {
			t.Errorf("a dry run ended the work: %v", err)
		}
	})
}
