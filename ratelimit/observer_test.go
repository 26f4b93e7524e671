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

func TestObserver(t *testing.T) {
	held := failing(sqllock.ErrHeld)
	tests := []struct {
		name  string
		locks sqllock.Locker
		id    string
		opts  []ratelimit.Option
		want  []ratelimit.Result
		err   error // of the decision
	}{
		{"admitted", sqllock.NewMemory(), "ada", nil, []ratelimit.Result{ratelimit.Admitted, ratelimit.Released}, nil},
		{"busy", held, "ada", nil, []ratelimit.Result{ratelimit.Busy}, ratelimit.ErrBusy},
		{"bad id", held, "", nil, []ratelimit.Result{ratelimit.Failed}, ratelimit.ErrBadID},
		{"away", failing(sqllock.ErrUnavailable), "ada", nil, []ratelimit.Result{ratelimit.Failed}, sqllock.ErrUnavailable},
		{
			"fail open", failing(sqllock.ErrUnavailable), "ada",
			[]ratelimit.Option{ratelimit.WithFailOpen()},
			[]ratelimit.Result{ratelimit.FailedOpen}, sqllock.ErrUnavailable,
		},
		{
			"dry run, free", sqllock.NewMemory(), "ada",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]ratelimit.Result{ratelimit.Admitted, ratelimit.Released}, nil,
		},
		{
			"dry run, busy, never waits", held, "ada",
			[]ratelimit.Option{ratelimit.WithDryRun(), ratelimit.WithWait(time.Hour, 1)},
			[]ratelimit.Result{ratelimit.DryRun}, ratelimit.ErrBusy,
		},
		{
			"dry run, bad id", held, "\x00",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]ratelimit.Result{ratelimit.DryRun}, ratelimit.ErrBadID,
		},
		{
			"dry run, capacity", failing(sqllock.ErrCapacity), "ada",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]ratelimit.Result{ratelimit.DryRun}, sqllock.ErrCapacity,
		},
		{
			"waited without success", away(), "ada",
			[]ratelimit.Option{ratelimit.WithWait(time.Second, 1)},
			[]ratelimit.Result{ratelimit.Failed}, sqllock.ErrUnavailable,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				l := ratelimit.OneAtATime(tt.locks, "export", append(tt.opts, ratelimit.WithObserver(j.observe))...)
				lock, err := l.Acquire(t.Context(), tt.id)
				unlock(t, lock)
				if got := j.results(); !slices.Equal(got, tt.want) {
					t.Errorf("events %q, want %q", got, tt.want)
				}
				j.agree(t, l.Stats())
				if tt.err == nil {
					return
				}
				if e := j.entries[0]; !errors.Is(e.Err, tt.err) || e.Namespace != "export" || e.Limit != 1 {
					t.Errorf("%+v, want %v of export, 1 at a time", e, tt.err)
				}
				admits := tt.want[0] == ratelimit.FailedOpen || tt.want[0] == ratelimit.DryRun
				if admits != (err == nil) {
					t.Errorf("got %v, admitted should be %v", err, admits)
				}
			})
		})
	}
}

// Why a request has waited in vain decides its result.
func TestObserverOfWaits(t *testing.T) {
	const maxWait, within = time.Second, time.Millisecond
	tests := []struct {
		name   string
		locks  sqllock.Locker
		policy []ratelimit.Option
		within time.Duration // the deadline of the request; 0: none
		result ratelimit.Result
		waited time.Duration
	}{
		{"to the end", waiting(), []ratelimit.Option{ratelimit.WithWait(maxWait, 1)}, 0, ratelimit.WaitTimeout, maxWait},
		{"its context ended in line", waiting(), []ratelimit.Option{ratelimit.WithWait(maxWait, 1)}, within, ratelimit.Canceled, within},
		{"the database went away", away(), []ratelimit.Option{ratelimit.WithWait(maxWait, 1)}, 0, ratelimit.Failed, maxWait},
		{"it fails open", away(), []ratelimit.Option{ratelimit.WithWait(maxWait, 1), ratelimit.WithFailOpen()}, 0, ratelimit.FailedOpen, maxWait},
		{"its context ended while the database was away", away(), []ratelimit.Option{ratelimit.WithWait(maxWait, 1), ratelimit.WithFailOpen()}, within, ratelimit.Canceled, within},
		{"its context had ended before", canceling(), []ratelimit.Option{ratelimit.WithFailOpen()}, -1, ratelimit.Canceled, 0},
		{"another context has ended", failing(context.DeadlineExceeded), nil, 0, ratelimit.Failed, 0},
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
				l := ratelimit.OneAtATime(tt.locks, "export", append(tt.policy, ratelimit.WithObserver(j.observe))...)
				_, err := l.Acquire(ctx, "ada")
				if got := j.results(); !slices.Equal(got, []ratelimit.Result{tt.result}) || j.entries[0].Waited != tt.waited {
					t.Errorf("events %+v, want %q after %v; Acquire: %v", j.entries, tt.result, tt.waited, err)
				}
				j.agree(t, l.Stats())
			})
		})
	}
}

// If all places of waiting requests are taken, a request is rejected as busy.
func TestObserverOfAFullLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithWait(time.Minute, 1), ratelimit.WithObserver(j.observe))
		lock := must(t, l, "ada")
		waits := acquire(t.Context(), l, "ada")
		if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
			t.Errorf("Acquire: %v, want ErrBusy", err)
		}
		if got := l.Stats(); got.Queued != 1 || got.Requests[ratelimit.Busy] != 1 {
			t.Errorf("%d wait, %d are busy; want 1 and 1", got.Queued, got.Requests[ratelimit.Busy])
		}
		unlock(t, lock)
		unlock(t, (<-waits).lock)
		if got := l.Stats(); got.Queued != 0 || got.TimeInQueue.Count != 1 {
			t.Errorf("%d wait, %d have waited; want 0 and 1", got.Queued, got.TimeInQueue.Count)
		}
		j.agree(t, l.Stats())
	})
}

func TestObserverDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(j.observe))
		hold(t, l, "ada", 7*time.Second)
		if got := j.last(t, ratelimit.Released).Held; got != 7*time.Second {
			t.Errorf("held %v, want 7s", got)
		}
	})
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

// A panic in Admitted must not leave a lock behind that no caller can release.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	broken := ratelimit.OneAtATime(locks, "export", ratelimit.WithObserver(func(context.Context, ratelimit.Event) { panic("broken") }))
	func() {
		defer func() {
			if recover() != "broken" {
				t.Error("the panic did not go on")
			}
		}()
		_, _ = broken.Acquire(t.Context(), "ada")
	}()
	unlock(t, must(t, ratelimit.OneAtATime(locks, "export"), "ada"))
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
