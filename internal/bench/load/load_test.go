package load_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
)

// An operation of 10 ms by 4 callers, in virtual time: what is counted is what
// ended within the time measured, and what comes after an operation is not.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var spent time.Duration
		m := load.Run(t.Context(), load.Load{
			Callers: 4, WarmUp: 95 * time.Millisecond, Measure: 100 * time.Millisecond,
			Op: func(ctx context.Context, caller int) error {
				if ctx.Done() != nil {
					t.Error("the context can end")
				}
				time.Sleep(10 * time.Millisecond) // the length of an operation
				if caller == 3 {
					return errors.New("never")
				}
				return nil
			},
			After: func(_ context.Context, caller int) error {
				if caller == 0 {
					time.Sleep(10 * time.Millisecond) // a rest
				}
				return nil
			},
			Server: func() time.Duration { spent += time.Second; return spent },
		})
		if m.Ops != 25 || m.Errors != 10 || m.FirstErr == nil || m.Rate() != 250 || m.Server != time.Second {
			t.Errorf("%d operations, %v a second, %d errors (%v), server %v; want 25, 250, 10, 1s", m.Ops, m.Rate(), m.Errors, m.FirstErr, m.Server)
		}
		if got := time.Duration(m.Latency.ValueAtQuantile(99)); got < 10*time.Millisecond || got > 10100*time.Microsecond {
			t.Errorf("p99 is %v, want 10ms", got)
		}
	})
}

// Run ends early with its context, and lets operations end.
func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		start := time.Now()
		load.Run(ctx, load.Load{Callers: 1, WarmUp: time.Hour, Measure: time.Hour, Op: func(context.Context, int) error {
			time.Sleep(10 * time.Millisecond) // the length of an operation
			return nil
		}})
		if got := time.Since(start); got != 30*time.Millisecond {
			t.Errorf("ended after %v, want 30ms", got)
		}
	})
}
