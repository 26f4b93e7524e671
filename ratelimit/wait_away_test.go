package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Polling goes on while the database is away for a moment. It stops at errors
// that waiting does not correct. While the database is away, a key is not
// reported as busy, and the error does not match a deadline that is not the
// caller's.
func TestPollErrors(t *testing.T) {
	tests := []struct {
		name  string
		tries int // that end with err, after the first two
		err   error
		want  error
	}{
		{"away", 18, sqllock.ErrUnavailable, nil},
		{"away to the end", math.MaxInt32, sqllock.ErrUnavailable, sqllock.ErrUnavailable},
		{"held", 18, sqllock.ErrHeld, nil},
		{"closed", 18, sqllock.ErrClosed, sqllock.ErrClosed},
		{"capacity", 18, sqllock.ErrCapacity, sqllock.ErrCapacity},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				memory := sqllock.NewMemory()
				tries := 0
				locks := fakeLocker{tryLock: func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
					switch tries++; {
					case tries <= 2: // of the two slots
						return nil, sqllock.ErrHeld
					case tries <= 2+tt.tries:
						return nil, tt.err
					}
					return memory.TryLock(ctx, key)
				}}
				l := ratelimit.AtMost(2, locks, "export", ratelimit.WithWait(time.Minute, 1))
				got := <-acquire(t.Context(), l, "ada")
				if !errors.Is(got.err, tt.want) || errors.Is(got.err, ratelimit.ErrBusy) || errors.Is(got.err, context.DeadlineExceeded) {
					t.Errorf("got %v, want %v", got.err, tt.want)
				}
				unlock(t, got.locks[0])
			})
		})
	}
}

// A wait that ends while the database of another level is away is no rejection
// by the level that was waited for, which had a place.
func TestWaitEndsWhileAnotherLevelIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := ratelimit.OneAtATime(sqllock.NewMemory(), "first", ratelimit.WithWait(time.Minute, 10))
		second := ratelimit.OneAtATime(fakeLocker{tryLock: ending(sqllock.ErrUnavailable)}, "second")
		held := must(t, first, "id")
		time.AfterFunc(time.Second, func() { _ = held.Unlock() })
		_, err := ratelimit.AcquireAll(t.Context(), level(first, "id"), level(second, "id"))
		if !errors.Is(err, sqllock.ErrUnavailable) || errors.Is(err, ratelimit.ErrBusy) || errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if n := second.Stats().Requests[ratelimit.Failed]; n != 1 {
			t.Error("not a rejection by the level that is away")
		}
		must(t, first, "id") // no place is kept
	})
}

// The error of a caller who leaves says whether the database was away, and that
// of a wait that ends says only that.
func TestWaitSaysWhetherItWasAway(t *testing.T) {
	for _, away := range []error{nil, sqllock.ErrUnavailable, sqllock.ErrConfig, sqllock.ErrCapacity, sqllock.ErrNotExclusive} {
		for _, leaves := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				l := ratelimit.OneAtATime(waiting(away), "export", ratelimit.WithWait(time.Minute, 1))
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				call := acquire(ctx, l, "ada")
				if leaves {
					leave()
				}
				got := (<-call).err
				if away != nil && !errors.Is(got, away) || errors.Is(got, context.Canceled) != leaves || strings.Contains(got.Error(), "%!") {
					t.Errorf("away: %v, leaves: %v: %v", away, leaves, got)
				}
				if busy := errors.Is(got, ratelimit.ErrBusy); busy != (away == nil && !leaves) {
					t.Errorf("away: %v, leaves: %v: %v", away, leaves, got)
				}
			})
		}
	}
}

// The pause between two attempts doubles from 2 to 50 ms, less a random part of
// up to a half. A wait that ends in a pause makes no further attempt.
func TestPauseBetweenAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(t.Context())
		var attempts []time.Time // at both slots
		locks := fakeLocker{tryLock: func(context.Context, sqllock.Key) (*sqllock.Lock, error) {
			if n := len(attempts); n == 0 || attempts[n-1].Before(time.Now()) {
				attempts = append(attempts, time.Now())
			}
			if len(attempts) == 200 {
				time.AfterFunc(time.Millisecond, leave)
			}
			return nil, sqllock.ErrHeld
		}}
		limiter := ratelimit.AtMost(2, locks, "export", ratelimit.WithWait(time.Hour, 1))
		if _, err := limiter.Acquire(ctx, "ada"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		longest := 2 * time.Millisecond
		for i, at := range attempts[1:] {
			if pause := at.Sub(attempts[i]); pause < longest/2 || pause > longest {
				t.Errorf("pause %d: %v, want %v to %v", i, pause, longest/2, longest)
			}
			longest = min(2*longest, 50*time.Millisecond)
		}
		if len(attempts) != 200 {
			t.Errorf("%d attempts, want 200", len(attempts))
		}
	})
}
