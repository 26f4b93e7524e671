package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	here := ratelimit.OneAtATime(locks, "export")
	there := ratelimit.OneAtATime(locks, "export") // as of another instance

	lock := must(t, here, "ada")
	for _, l := range []*ratelimit.Limiter{here, there} {
		if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
			t.Errorf("second request of one user: %v, want ErrBusy", err)
		}
		unlock(t, must(t, l, "grace"))
	}
	unlock(t, must(t, ratelimit.OneAtATime(locks, "payout"), "ada"))

	unlock(t, lock)
	unlock(t, must(t, there, "ada"))
}

func TestBusyError(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(failing(sqllock.ErrHeld), "export")
	_, err := l.Acquire(t.Context(), "ada")
	var busy *ratelimit.BusyError
	if !errors.As(err, &busy) || busy.Namespace != "export" || busy.RetryAfter != time.Second {
		t.Errorf("got %#v, want a BusyError of export, one second", err)
	}
	if got, want := err.Error(), "ratelimit: export: key is busy"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

func TestAccessors(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(7, sqllock.NewMemory(), "export")
	if l.Limit() != 7 || l.Namespace() != "export" {
		t.Errorf("Limit %d, Namespace %q; want 7, export", l.Limit(), l.Namespace())
	}
}

// Acquire returns the error of its Locker. A custom Locker may wrap the
// sentinels.
func TestAcquireErrors(t *testing.T) {
	t.Parallel()
	failOpen := []ratelimit.Option{ratelimit.WithFailOpen()}
	tests := []struct {
		name string
		err  error // the locker's
		opts []ratelimit.Option
		want error // nil: admitted
	}{
		{"held", sqllock.ErrHeld, nil, ratelimit.ErrBusy},
		{"held, wrapped", fmt.Errorf("mine: %w", sqllock.ErrHeld), nil, ratelimit.ErrBusy},
		{"away", sqllock.ErrUnavailable, nil, sqllock.ErrUnavailable},
		{"capacity", sqllock.ErrCapacity, nil, sqllock.ErrCapacity},
		{"not exclusive", sqllock.ErrNotExclusive, nil, sqllock.ErrNotExclusive},
		{"config", sqllock.ErrConfig, nil, sqllock.ErrConfig},
		{"closed", sqllock.ErrClosed, nil, sqllock.ErrClosed},
		{"unknown", io.ErrUnexpectedEOF, nil, io.ErrUnexpectedEOF},

		{"open: held", sqllock.ErrHeld, failOpen, ratelimit.ErrBusy},
		{"open: away", sqllock.ErrUnavailable, failOpen, nil},
		{"open: away, wrapped", fmt.Errorf("mine: %w", sqllock.ErrUnavailable), failOpen, nil},
		{"open: capacity", sqllock.ErrCapacity, failOpen, sqllock.ErrCapacity},
		{"open: not exclusive", sqllock.ErrNotExclusive, failOpen, sqllock.ErrNotExclusive},
		{"open: config", sqllock.ErrConfig, failOpen, sqllock.ErrConfig},
		{"open: closed", sqllock.ErrClosed, failOpen, sqllock.ErrClosed},
		{"open: unknown", io.ErrUnexpectedEOF, failOpen, io.ErrUnexpectedEOF},
	}
	for _, tt := range tests {
		for _, slots := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", tt.name, slots), func(t *testing.T) {
				t.Parallel()
				l := ratelimit.AtMost(slots, failing(tt.err), "export", tt.opts...)
				lock, err := l.Acquire(t.Context(), "ada")
				if lock != nil {
					t.Error("got a lock, want none")
				}
				switch {
				case !errors.Is(err, tt.want):
					t.Errorf("got %v, want %v", err, tt.want)
				case err != nil && !strings.HasPrefix(err.Error(), "ratelimit: export: "):
					t.Errorf("the text %q does not say which limiter", err)
				}
			})
		}
	}
}

// A request that has ended is not admitted, and its end is not taken for a
// failure of the database.
func TestContextEnded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	lockers := map[string]sqllock.Locker{
		"memory":               sqllock.NewMemory(),
		"one key":              onlyOne{sqllock.NewMemory()},
		"and the database too": failing(joined{sqllock.ErrUnavailable, context.Canceled}),
	}
	for name, locks := range lockers {
		for _, slots := range []int{1, 2} {
			l := ratelimit.AtMost(slots, locks, "export", ratelimit.WithFailOpen(), ratelimit.WithWait(time.Hour, 1))
			if _, err := l.Acquire(ctx, "ada"); !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %d slots: %v, want context.Canceled", name, slots, err)
			}
		}
	}
}

func TestMaxHoldUnderFailOpenNeedsNoLock(t *testing.T) {
	t.Parallel()
	l := ratelimit.OneAtATime(failing(sqllock.ErrUnavailable), "export", ratelimit.WithFailOpen(), ratelimit.WithMaxHold(time.Nanosecond))
	lock, err := l.Acquire(t.Context(), "ada")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Err(); !errors.Is(err, sqllock.ErrUnavailable) {
		t.Errorf("Err %v, want ErrUnavailable", err)
	}
	unlock(t, lock)
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	for _, dry := range []bool{false, true} {
		var j journal
		opts := []ratelimit.Option{ratelimit.WithObserver(j.observe)}
		want, result := io.EOF, ratelimit.Failed
		if dry {
			opts, want, result = append(opts, ratelimit.WithDryRun()), nil, ratelimit.DryRun
		}
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", opts...)
		if err := l.Refuse(t.Context(), io.EOF); err != want {
			t.Errorf("dry run %v: %v, want %v", dry, err, want)
		}
		if got := j.last(t, result).Err; got != io.EOF {
			t.Errorf("dry run %v: the Observer heard %v, want EOF", dry, got)
		}
	}
}

// The lock's context has the values of the request's context.
func TestContextValues(t *testing.T) {
	t.Parallel()
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "v")
	l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
	lock, err := l.Acquire(ctx, "ada")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	if got := lock.Context().Value(key{}); got != "v" {
		t.Errorf("got %v, want v", got)
	}
}

// A key secret separates a Limiter from those without a secret, or with another
// one. The Limiter keeps a copy.
func TestWithKeySecret(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	secret := []byte("secret")
	option := ratelimit.WithKeySecret(secret)
	clear(secret)
	keyed := ratelimit.AtMost(2, locks, "export", option)
	must(t, keyed, "ada")

	must(t, ratelimit.OneAtATime(locks, "export"), "ada")
	must(t, ratelimit.OneAtATime(locks, "export", ratelimit.WithKeySecret([]byte("other"))), "ada")
	same := ratelimit.OneAtATime(locks, "export", ratelimit.WithKeySecret([]byte("secret")))
	if _, err := same.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("same secret: %v, want ErrBusy", err)
	}
	if got, want := keyed.Namespace(), sqllock.Namespace("export"); got != want {
		t.Errorf("Namespace %q, want %q", got, want)
	}
}

// Under load no more requests than the limit are admitted at any moment.
func TestLimitHolds(t *testing.T) {
	t.Parallel()
	for _, locks := range []sqllock.Locker{sqllock.NewMemory(), onlyOne{sqllock.NewMemory()}} {
		for _, n := range []int{1, 3} {
			l := ratelimit.AtMost(n, locks, "export", ratelimit.WithWait(time.Minute, 100))
			var inside, most atomic.Int64
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					for range 20 {
						lock, err := l.Acquire(t.Context(), "ada")
						if err != nil {
							t.Error(err)
							return
						}
						now := inside.Add(1)
						for was := most.Load(); now > was && !most.CompareAndSwap(was, now); was = most.Load() {
						}
						inside.Add(-1)
						_ = lock.Unlock()
					}
				})
			}
			wg.Wait()
			if most.Load() > int64(n) {
				t.Errorf("%T: %d at a time, limit %d", locks, most.Load(), n)
			}
		}
	}
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	tests := map[string]func(){
		"nil locker":         func() { ratelimit.OneAtATime(nil, "export") },
		"nil locker, n":      func() { ratelimit.AtMost(2, nil, "export") },
		"no namespace":       func() { ratelimit.OneAtATime(locks, "") },
		"colon":              func() { ratelimit.OneAtATime(locks, "a:b") },
		"hash":               func() { ratelimit.OneAtATime(locks, "a#1") },
		"none at a time":     func() { ratelimit.AtMost(0, locks, "export") },
		"fewer than none":    func() { ratelimit.AtMost(-1, locks, "export") },
		"no wait":            func() { ratelimit.WithWait(0, 1) },
		"negative wait":      func() { ratelimit.WithWait(-time.Second, 1) },
		"no waiters":         func() { ratelimit.WithWait(time.Second, 0) },
		"no retry func":      func() { ratelimit.WithRetryAfter(nil) },
		"no max hold":        func() { ratelimit.WithMaxHold(0) },
		"no id length":       func() { ratelimit.WithMaxIDLen(0) },
		"no secret":          func() { ratelimit.WithKeySecret(nil) },
		"secret of no bytes": func() { ratelimit.WithKeySecret([]byte{}) },
	}
	for name, misuse := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if text, _ := recover().(string); !strings.HasPrefix(text, "ratelimit: ") {
					t.Errorf("panic %q, want one that begins with the package's name", text)
				}
			}()
			misuse()
		})
	}
}
