package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Each decision is an event with its result. Why a request has waited without
// success decides its result.
func TestObserver(t *testing.T) {
	const maxWait, within = time.Second, time.Millisecond
	held, open, dry, wait := failing(sqllock.ErrHeld), ratelimit.WithFailOpen(), ratelimit.WithDryRun(), ratelimit.WithWait(maxWait, 1)
	opts := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	type results = []ratelimit.Result
	tests := []struct {
		name   string
		locks  sqllock.Locker
		id     string
		opts   []ratelimit.Option
		within time.Duration // the deadline of the request; 0: none
		want   results
		err    error // of the decision
		waited time.Duration
	}{
		{"admitted", sqllock.NewMemory(), "ada", nil, 0, results{ratelimit.Admitted, ratelimit.Released}, nil, 0},
		{"busy", held, "ada", nil, 0, results{ratelimit.Busy}, ratelimit.ErrBusy, 0},
		{"bad id", held, "", nil, 0, results{ratelimit.Failed}, ratelimit.ErrBadID, 0},
		{"away", failing(sqllock.ErrUnavailable), "ada", nil, 0, results{ratelimit.Failed}, sqllock.ErrUnavailable, 0},
		{"fail open", failing(sqllock.ErrUnavailable), "ada", opts(open), 0, results{ratelimit.FailedOpen}, sqllock.ErrUnavailable, 0},
		{"another context has ended", failing(context.DeadlineExceeded), "ada", nil, 0, results{ratelimit.Failed}, context.DeadlineExceeded, 0},
		{"its context had ended before", canceling(), "ada", opts(open), -1, results{ratelimit.Canceled}, context.DeadlineExceeded, 0},

		{"dry run, free", sqllock.NewMemory(), "ada", opts(dry), 0, results{ratelimit.Admitted, ratelimit.Released}, nil, 0},
		{"dry run, busy, never waits", held, "ada", opts(dry, wait), 0, results{ratelimit.DryRun}, ratelimit.ErrBusy, 0},
		{"dry run, bad id", held, "\x00", opts(dry), 0, results{ratelimit.DryRun}, ratelimit.ErrBadID, 0},
		{"dry run, capacity", failing(sqllock.ErrCapacity), "ada", opts(dry), 0, results{ratelimit.DryRun}, sqllock.ErrCapacity, 0},

		{"waited to the end", waiting(), "ada", opts(wait), 0, results{ratelimit.WaitTimeout}, ratelimit.ErrBusy, maxWait},
		{"its context ended in line", waiting(), "ada", opts(wait), within, results{ratelimit.Canceled}, context.DeadlineExceeded, within},
		{"the database went away", away(), "ada", opts(wait), 0, results{ratelimit.Failed}, sqllock.ErrUnavailable, maxWait},
		{"the database was full", fullLocker{}, "ada", opts(wait), 0, results{ratelimit.Failed}, sqllock.ErrCapacity, maxWait},
		{"it fails open", away(), "ada", opts(wait, open), 0, results{ratelimit.FailedOpen}, sqllock.ErrUnavailable, maxWait},
		{"its context ended while the database was away", away(), "ada", opts(wait, open), within, results{ratelimit.Canceled}, context.DeadlineExceeded, within},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				ctx := t.Context()
				if tt.within != 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				l := ratelimit.OneAtATime(tt.locks, "export", append(tt.opts, ratelimit.WithObserver(j.observe))...)
				lock, err := l.Acquire(ctx, tt.id)
				unlock(t, lock)
				if got := j.results(); !slices.Equal(got, tt.want) {
					t.Fatalf("events %q, want %q; Acquire: %v", got, tt.want, err)
				}
				j.agree(t, l.Stats())
				e := j.entries[0]
				if e.Waited != tt.waited || !errors.Is(e.Err, tt.err) || e.Namespace != "export" || e.Limit != 1 {
					t.Errorf("%+v, want %v of export after %v, 1 at a time", e, tt.err, tt.waited)
				}
				switch e.Result {
				case ratelimit.Admitted, ratelimit.FailedOpen, ratelimit.DryRun:
					if err != nil {
						t.Errorf("got %v, want to be admitted", err)
					}
				default:
					if !errors.Is(err, tt.err) || ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) != (tt.err == context.DeadlineExceeded) {
						t.Errorf("got %v, want %v, and no deadline that is not the caller's", err, tt.err)
					}
				}
			})
		})
	}
}

// Each of several Observers gets each event, in the order of the options, with
// the context of the request.
func TestObservers(t *testing.T) {
	t.Parallel()
	type key struct{}
	var told []string
	observer := func(name string) ratelimit.Option {
		return ratelimit.WithObserver(func(ctx context.Context, e ratelimit.Event) {
			told = append(told, fmt.Sprintf("%s: %s %v", name, e.Result, ctx.Value(key{})))
		})
	}
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", observer("one"), observer("two"))
	lock, err := l.Acquire(context.WithValue(t.Context(), key{}, 7), "ada")
	if err != nil {
		t.Fatal(err)
	}
	unlock(t, lock)
	want := []string{"one: admitted 7", "two: admitted 7", "one: released 7", "two: released 7"}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// If a lock has ended before its request was admitted, the events still come in
// order: Admitted, then Lost.
func TestObserverOrder(t *testing.T) {
	t.Parallel()
	memory := sqllock.NewMemory()
	locks := fakeLocker{tryLock: func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
		lock, err := memory.TryLock(ctx, key)
		unlock(t, lock)
		return lock, err
	}}
	var j journal
	must(t, ratelimit.OneAtATime(locks, "export", ratelimit.WithObserver(j.observe)), "ada")
	if got, want := j.results(), []ratelimit.Result{ratelimit.Admitted, ratelimit.Released}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
