package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Each decision is an event with its result. Why a request has waited without
// success decides its result. Acquire returns the error of its Locker, which may
// wrap the sentinels. Only ErrUnavailable fails open.
func TestObserver(t *testing.T) {
	const maxWait, within = time.Second, time.Millisecond
	held, open, dry, wait := failing(sqllock.ErrHeld), ratelimit.WithFailOpen(), ratelimit.WithDryRun(), ratelimit.WithWait(maxWait, 1)
	opts := func(o ...ratelimit.Option) []ratelimit.Option { return o }
	type results = []ratelimit.Result
	type test struct {
		name   string
		locks  sqllock.Locker
		id     string
		opts   []ratelimit.Option
		within time.Duration // the deadline of the request; 0: none
		want   results
		err    error // of the decision
		waited time.Duration
	}
	tests := []test{
		{"admitted", sqllock.NewMemory(), "ada", nil, 0, results{ratelimit.Admitted, ratelimit.Released}, nil, 0},
		{"busy", held, "ada", nil, 0, results{ratelimit.Busy}, ratelimit.ErrBusy, 0},
		{"bad id", held, "", nil, 0, results{ratelimit.Failed}, ratelimit.ErrBadID, 0},
		{"busy, wrapped", failing(fmt.Errorf("mine: %w", sqllock.ErrHeld)), "ada", opts(open), 0, results{ratelimit.Busy}, ratelimit.ErrBusy, 0},
		{"away", failing(sqllock.ErrUnavailable), "ada", nil, 0, results{ratelimit.Failed}, sqllock.ErrUnavailable, 0},
		{"fail open", failing(sqllock.ErrUnavailable), "ada", opts(open), 0, results{ratelimit.FailedOpen}, sqllock.ErrUnavailable, 0},
		{"fail open, wrapped", failing(fmt.Errorf("mine: %w", sqllock.ErrUnavailable)), "ada", opts(open), 0, results{ratelimit.FailedOpen}, sqllock.ErrUnavailable, 0},
		{"another context has ended", failing(context.DeadlineExceeded), "ada", nil, 0, results{ratelimit.Failed}, context.DeadlineExceeded, 0},
		{"its context had ended before", fakeLocker{tryLock: ending(sqllock.ErrUnavailable)}, "ada", opts(open), -1, results{ratelimit.Canceled}, context.DeadlineExceeded, 0},

		{"dry run, free", sqllock.NewMemory(), "ada", opts(dry), 0, results{ratelimit.Admitted, ratelimit.Released}, nil, 0},
		{"dry run, busy, never waits", held, "ada", opts(dry, wait), 0, results{ratelimit.DryRun}, ratelimit.ErrBusy, 0},
		{"dry run, bad id", held, "\x00", opts(dry), 0, results{ratelimit.DryRun}, ratelimit.ErrBadID, 0},
		{"dry run, capacity", failing(sqllock.ErrCapacity), "ada", opts(dry), 0, results{ratelimit.DryRun}, sqllock.ErrCapacity, 0},

		{"waited to the end", waiting(nil), "ada", opts(wait), 0, results{ratelimit.WaitTimeout}, ratelimit.ErrBusy, maxWait},
		{"its context ended in line", waiting(nil), "ada", opts(wait), within, results{ratelimit.Canceled}, context.DeadlineExceeded, within},
		{"the database went away", waiting(sqllock.ErrUnavailable), "ada", opts(wait), 0, results{ratelimit.Failed}, sqllock.ErrUnavailable, maxWait},
		{"the database was full", waiting(sqllock.ErrCapacity), "ada", opts(wait), 0, results{ratelimit.Failed}, sqllock.ErrCapacity, maxWait},
		{"it fails open", waiting(sqllock.ErrUnavailable), "ada", opts(wait, open), 0, results{ratelimit.FailedOpen}, sqllock.ErrUnavailable, maxWait},
		{"its context ended while the database was away", waiting(sqllock.ErrUnavailable), "ada", opts(wait, open), within, results{ratelimit.Canceled}, context.DeadlineExceeded, within},
	}
	for _, err := range []error{sqllock.ErrCapacity, sqllock.ErrNotExclusive, sqllock.ErrConfig, sqllock.ErrClosed, io.ErrUnexpectedEOF} {
		for name, o := range map[string][]ratelimit.Option{"": nil, ", does not fail open": opts(open)} {
			tests = append(tests, test{err.Error() + name, failing(err), "ada", o, 0, results{ratelimit.Failed}, err, 0})
		}
	}
	for _, tt := range tests {
		for _, slots := range []int{1, 3} {
			if slots > 1 && (tt.waited > 0 || tt.err == nil) { // a Memory is of one bubble
				continue
			}
			t.Run(fmt.Sprint(tt.name, "/", slots), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var j journal
					ctx := t.Context()
					if tt.within != 0 {
						var cancel context.CancelFunc
						ctx, cancel = context.WithTimeout(ctx, tt.within)
						defer cancel()
					}
					l := ratelimit.AtMost(slots, tt.locks, "export", append(tt.opts, ratelimit.WithObserver(j.observe))...)
					lock, err := l.Acquire(ctx, tt.id)
					unlock(t, lock)
					if got := j.results(); !slices.Equal(got, tt.want) {
						t.Fatalf("events %q, want %q; Acquire: %v", got, tt.want, err)
					}
					j.agree(t, l.Stats())
					e := j.entries[0]
					if e.Waited != tt.waited || !errors.Is(e.Err, tt.err) || e.Namespace != "export" || e.Limit != slots {
						t.Errorf("%+v, want %v of export after %v, %d at a time", e, tt.err, tt.waited, slots)
					}
					switch e.Result {
					case ratelimit.Admitted, ratelimit.FailedOpen, ratelimit.DryRun:
						if err != nil || (lock != nil) != (e.Result == ratelimit.Admitted) {
							t.Errorf("got %v, %v, want to be admitted, with a lock if it was free", lock, err)
						}
						return
					}
					if !errors.Is(err, tt.err) || ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) != (tt.err == context.DeadlineExceeded) {
						t.Errorf("got %v, want %v, and no deadline that is not the caller's", err, tt.err)
					}
					if text := err.Error(); tt.id != "" && (!strings.HasPrefix(text, "ratelimit: export: ") || strings.Contains(text, "ada")) {
						t.Errorf("the text %q does not say which limiter, or holds the id", text)
					}
				})
			})
		}
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
