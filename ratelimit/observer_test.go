package ratelimit_test

import (
	"context"
	"errors"
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
		want  []string
		err   error // what Refused or FailedOpen is given
	}{
		{"admitted", sqllock.NewMemory(), "ada", nil, []string{"admitted", "released"}, nil},
		{"busy", held, "ada", nil, []string{"refused"}, ratelimit.ErrBusy},
		{"bad id", held, "", nil, []string{"refused"}, ratelimit.ErrBadID},
		{"away", failing(sqllock.ErrUnavailable), "ada", nil, []string{"refused"}, sqllock.ErrUnavailable},
		{
			"fail open", failing(sqllock.ErrUnavailable), "ada",
			[]ratelimit.Option{ratelimit.WithFailOpen()},
			[]string{"failed open"}, sqllock.ErrUnavailable,
		},
		{
			"dry run, free", sqllock.NewMemory(), "ada",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]string{"admitted", "released"}, nil,
		},
		{
			"dry run, busy, never waits", held, "ada",
			[]ratelimit.Option{ratelimit.WithDryRun(), ratelimit.WithWait(time.Hour, 1)},
			[]string{"refused"}, ratelimit.ErrBusy,
		},
		{
			"dry run, bad id", held, "\x00",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]string{"refused"}, ratelimit.ErrBadID,
		},
		{
			"dry run, capacity", failing(sqllock.ErrCapacity), "ada",
			[]ratelimit.Option{ratelimit.WithDryRun()},
			[]string{"refused"}, sqllock.ErrCapacity,
		},
		{
			"waited without success", away(), "ada",
			[]ratelimit.Option{ratelimit.WithWait(time.Second, 1)},
			[]string{"waited", "refused"}, sqllock.ErrUnavailable,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				l := ratelimit.OneAtATime(tt.locks, "export", append(tt.opts, ratelimit.WithObserver(j.observer()))...)
				lock, err := l.Acquire(t.Context(), tt.id)
				unlock(t, lock)
				if got := j.events(); !slices.Equal(got, tt.want) {
					t.Errorf("events %q, want %q", got, tt.want)
				}
				if tt.err == nil {
					return
				}
				for _, e := range j.entries {
					if e.event != "waited" && !errors.Is(e.err, tt.err) {
						t.Errorf("%s: %v, want %v", e.event, e.err, tt.err)
					}
				}
				admits := slices.Contains(tt.want, "failed open") || tt.name[:3] == "dry"
				if admits != (err == nil) {
					t.Errorf("got %v, admitted should be %v", err, admits)
				}
			})
		})
	}
}

func TestObserverDurations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(j.observer()))
		hold(t, l, "ada", 7*time.Second)
		if got := j.last(t, "released").d; got != 7*time.Second {
			t.Errorf("held %v, want 7s", got)
		}
	})
}

// An Observer may have no funcs.
func TestObserverEmpty(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", ratelimit.WithObserver(ratelimit.Observer{}))
	lock := must(t, l, "ada")
	if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	unlock(t, lock)
}

// A panic in Admitted must not leave a lock behind that no caller can release.
func TestObserverPanics(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	broken := ratelimit.OneAtATime(locks, "export", ratelimit.WithObserver(ratelimit.Observer{
		Admitted: func() { panic("broken") },
	}))
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
	must(t, ratelimit.OneAtATime(locks, "export", ratelimit.WithObserver(j.observer())), "ada")
	if got, want := j.events(), []string{"admitted", "released"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
