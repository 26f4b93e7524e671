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

// waitCase is a way to wait: for one key, for one of several in one call, or by
// trying again and again.
type waitCase struct {
	name  string
	slots int
	locks func() sqllock.Locker
}

func waitCases() []waitCase {
	memory := func() sqllock.Locker { return sqllock.NewMemory() }
	return []waitCase{
		{"one", 1, memory},
		{"any", 2, memory},
		{"poll", 2, func() sqllock.Locker { return onlyOne{sqllock.NewMemory()} }},
	}
}

// A wait ends when a place is free, after maxWait, or with the caller's own
// context. The error is ErrBusy, or that of the caller's context.
func TestWait(t *testing.T) {
	const maxWait = 10 * time.Second
	for _, way := range waitCases() {
		for _, tt := range []struct {
			name   string
			after  time.Duration // when a place is free, or the caller's context ends
			ends   func(cancel context.CancelFunc, held *sqllock.Lock)
			want   error
			result ratelimit.Result
		}{
			{"free", 4 * time.Second, func(_ context.CancelFunc, held *sqllock.Lock) { _ = held.Unlock() }, nil, ratelimit.Admitted},
			{"never", maxWait, nil, ratelimit.ErrBusy, ratelimit.WaitTimeout},
			{"canceled", time.Second, func(cancel context.CancelFunc, _ *sqllock.Lock) { cancel() }, context.Canceled, ratelimit.Canceled},
		} {
			t.Run(way.name+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var j journal
					l := ratelimit.AtMost(way.slots, way.locks(), "export", ratelimit.WithWait(maxWait, 1), ratelimit.WithObserver(j.observe))
					held := fill(t, l, "ada", l.Limit())
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					next := acquire(ctx, l, "ada")
					if tt.ends != nil {
						time.Sleep(tt.after)
						tt.ends(cancel, held[0])
					}
					got := <-next
					if !errors.Is(got.err, tt.want) || errors.Is(got.err, context.DeadlineExceeded) {
						t.Fatalf("got %v, want %v, and no deadline that is not the caller's", got.err, tt.want)
					}
					unlock(t, got.locks[0])
					if late := got.took - tt.after; late < 0 || late > 50*time.Millisecond {
						t.Errorf("waited %v, want %v, and no more than a poll longer", got.took, tt.after)
					}
					if told := j.last(t, tt.result).Waited; told != got.took {
						t.Errorf("the Observer heard of %v, want %v", told, got.took)
					}
				})
			})
		}
	}
}

// A bounded number of requests of an id wait; the next is rejected at once. The
// places of one id are its own, and a request that does not need to wait does
// not count. A place is free again when its request is admitted or has ended.
func TestWaiters(t *testing.T) {
	for _, tt := range waitCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ratelimit.AtMost(tt.slots, tt.locks(), "export", ratelimit.WithWait(time.Minute, 2))
				held := fill(t, l, "ada", l.Limit())
				fill(t, l, "grace", l.Limit())

				ctx, cancel := context.WithCancel(t.Context())
				first, second := acquire(t.Context(), l, "ada"), acquire(ctx, l, "ada")
				if got := <-acquire(t.Context(), l, "ada"); !errors.Is(got.err, ratelimit.ErrBusy) || got.took != 0 {
					t.Errorf("third waiter: %v after %v, want ErrBusy at once", got.err, got.took)
				}
				other := acquire(ctx, l, "grace") // has places of its own
				unlock(t, must(t, l, "edsger"))   // free: it does not wait
				if n := l.Stats().Queued; n != 3 {
					t.Errorf("%d wait, want 3", n)
				}

				cancel()
				<-second
				<-other
				third := acquire(t.Context(), l, "ada")
				if got := <-acquire(t.Context(), l, "ada"); !errors.Is(got.err, ratelimit.ErrBusy) {
					t.Errorf("another one, with two in line: %v, want ErrBusy", got.err)
				}
				unlock(t, held[0])
				if tt.name != "poll" { // there is an order
					got := <-first
					unlock(t, got.locks[0])
					end(t, <-third)
					return
				}
				for range 2 {
					select {
					case got := <-first:
						unlock(t, got.locks[0])
					case got := <-third:
						unlock(t, got.locks[0])
					}
				}
			})
		})
	}
}

// Requests of Acquire and those of AcquireAll may wait in one line. Neither takes
// the places of the others.
func TestWaitersOfBothKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		l := ratelimit.OneAtATime(locks, "export", ratelimit.WithWait(time.Hour, 1))
		held := must(t, l, "ada")
		calls := []<-chan result{
			acquire(t.Context(), l, "ada"),
			stacked(t.Context(), level(l, "ada"), level(ratelimit.OneAtATime(locks, "other"), "ada")),
		}
		if n := l.Stats().Queued; n != 2 {
			t.Errorf("%d wait, want 2", n)
		}
		unlock(t, held)
		for _, c := range calls {
			end(t, <-c)
		}
	})
}

// A Limiter keeps nothing of the ids for which no request waits.
func TestLinesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, opts := range [][]ratelimit.Option{nil, {ratelimit.WithWait(time.Second, 1)}} {
			l := ratelimit.OneAtATime(sqllock.NewMemory(), "export", opts...)
			for _, id := range []string{"ada", "grace"} {
				must(t, l, id)
				mustBeBusy(t, l, id)
			}
			if n := ratelimit.Lines(l); n != 0 {
				t.Errorf("%d lines, though no request waits", n)
			}
		}
	})
}

// A new request takes no place that has just become free while an older one
// waits and is about to look again.
func TestNewRequestWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.AtMost(2, onlyOne{sqllock.NewMemory()}, "export", ratelimit.WithWait(time.Hour, 10))
		held := fill(t, l, "ada", 2)
		first := acquire(t.Context(), l, "ada")
		unlock(t, held[0])
		second := acquire(t.Context(), l, "ada")
		if len(second) != 0 {
			t.Error("the second request has overtaken the first")
		}
		for _, c := range []<-chan result{first, second} {
			r := <-c
			if r.err != nil {
				t.Fatal(r.err)
			}
			unlock(t, r.locks[0])
		}
	})
}
