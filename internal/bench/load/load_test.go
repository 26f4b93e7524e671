package load_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/bench/load"
)

// An operation of 10 ms by 4 callers, in virtual time: what is counted is what
// ended within the time measured.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		m := load.Run(t.Context(), load.Load{
			Callers: 4, WarmUp: 95 * time.Millisecond, Measure: 100 * time.Millisecond,
			Op: func(ctx context.Context, caller, _ int) error {
				if ctx.Done() != nil {
					t.Error("the context can end")
				}
				time.Sleep(10 * time.Millisecond) // the length of an operation
				if caller == 3 {
					return errors.New("never")
				}
				return nil
			},
			Usage: func() load.Usage {
				spent := time.Duration(asked.Add(1) * int64(time.Second))
				return load.Usage{Client: spent, Server: 2 * spent}
			},
		})
		if m.Ops != 30 || m.Errors != 10 || m.FirstErr == nil {
			t.Errorf("%d operations and %d errors (%v), want 30 and 10", m.Ops, m.Errors, m.FirstErr)
		}
		for caller, n := range m.PerCaller {
			if want := map[bool]int64{true: 10, false: 0}[caller < 3]; n != want {
				t.Errorf("caller %d: %d, want %d", caller, n, want)
			}
		}
		if got := m.Rate(); got != 300 {
			t.Errorf("%v per second, want 300", got)
		}
		if got := time.Duration(m.Latency.ValueAtQuantile(99)); got < 10*time.Millisecond || got > 10100*time.Microsecond {
			t.Errorf("p99 is %v, want 10ms", got)
		}
		if want := (load.Usage{Client: time.Second, Server: 2 * time.Second}); m.Usage != want {
			t.Errorf("usage is %v, want %v", m.Usage, want)
		}
	})
}

// Run ends early with its context, and lets operations end.
func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Millisecond)
		defer cancel()
		start := time.Now()
		load.Run(ctx, load.Load{
			Callers: 1, WarmUp: time.Hour, Measure: time.Hour,
			Op: func(context.Context, int, int) error {
				time.Sleep(10 * time.Millisecond) // the length of an operation
				return nil
			},
		})
		if got := time.Since(start); got != 30*time.Millisecond {
			t.Errorf("ended after %v, want 30ms", got)
		}
	})
}
