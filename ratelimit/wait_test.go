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

// A result is that of one Acquire.
type result struct {
	lock *sqllock.Lock
	err  error
	took time.Duration
}

// acquire calls Acquire in a goroutine, and returns once that waits or has
// ended.
func acquire(ctx context.Context, l *ratelimit.Limiter, id string) <-chan result {
	c := make(chan result, 1)
	go func() {
		began := time.Now()
		lock, err := l.Acquire(ctx, id)
		c <- result{lock, err, time.Since(began)}
	}()
	synctest.Wait()
	return c
}

func TestWaitUntilFree(t *testing.T) {
	for _, tt := range waitCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				l := ratelimit.AtMost(tt.slots, tt.locks(), "export",
					ratelimit.WithWait(10*time.Second, 1), ratelimit.WithObserver(j.observe))
				held := fill(t, l, "ada", l.Limit())
				next := acquire(t.Context(), l, "ada")

				time.Sleep(4 * time.Second)
				unlock(t, held[0])
				got := <-next
				if got.err != nil {
					t.Fatalf("got %v, want a lock", got.err)
				}
				unlock(t, got.lock)
				if late := got.took - 4*time.Second; late < 0 || late > 50*time.Millisecond {
					t.Errorf("waited %v, want 4s, and no more than a poll longer", got.took)
				}
				if told := j.last(t, ratelimit.Admitted).Waited; told != got.took {
					t.Errorf("the Observer heard of %v, want %v", told, got.took)
				}
			})
		})
	}
}

func TestWaitInVain(t *testing.T) {
	for _, tt := range waitCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				l := ratelimit.AtMost(tt.slots, tt.locks(), "export",
					ratelimit.WithWait(3*time.Second, 1), ratelimit.WithObserver(j.observe))
				fill(t, l, "ada", l.Limit())
				got := <-acquire(t.Context(), l, "ada")
				if !errors.Is(got.err, ratelimit.ErrBusy) || errors.Is(got.err, context.DeadlineExceeded) {
					t.Errorf("got %v, want ErrBusy, and no deadline that is not the caller's", got.err)
				}
				if told := j.last(t, ratelimit.WaitTimeout).Waited; got.took != 3*time.Second || told != got.took {
					t.Errorf("waited %v, the Observer heard of %v; want 3s", got.took, told)
				}
			})
		})
	}
}

// The end of the caller's own context is the caller's error.
func TestWaitContextEnds(t *testing.T) {
	for _, tt := range waitCases() {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := ratelimit.AtMost(tt.slots, tt.locks(), "export", ratelimit.WithWait(time.Minute, 2))
				fill(t, l, "ada", l.Limit())

				canceled, cancel := context.WithCancel(t.Context())
				first := acquire(canceled, l, "ada")
				deadline, stop := context.WithTimeout(t.Context(), time.Second)
				defer stop()
				second := acquire(deadline, l, "ada")

				cancel()
				if got := <-first; !errors.Is(got.err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled", got.err)
				}
				if got := <-second; !errors.Is(got.err, context.DeadlineExceeded) || got.took != time.Second {
					t.Errorf("got %v after %v, want the caller's deadline after 1s", got.err, got.took)
				}
			})
		})
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
					unlock(t, got.lock)
					end(t, <-third)
					return
				}
				for range 2 {
					select {
					case got := <-first:
						unlock(t, got.lock)
					case got := <-third:
						unlock(t, got.lock)
					}
				}
			})
		})
	}
}

// The caller's context may end just after the deadline of the wait. Then the
// error is that of the context, and not ErrBusy.
func TestWaitContextEndsAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		locks := fakeLocker{
			tryLock: func(context.Context, sqllock.Key) (*sqllock.Lock, error) { return nil, sqllock.ErrHeld },
			lock: func(bounded context.Context, _ sqllock.Key) (*sqllock.Lock, error) {
				<-bounded.Done()
				cancel()
				return nil, bounded.Err()
			},
		}
		l := ratelimit.OneAtATime(locks, "export", ratelimit.WithWait(time.Second, 1))
		_, err := l.Acquire(ctx, "ada")
		if !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ratelimit.ErrBusy) {
			t.Errorf("got %v, want context.Canceled alone", err)
		}
	})
}

// The pauses between polls double from 2 to 50 ms, less up to a half: a long
// wait costs the database little.
func TestPollBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		locks := fakeLocker{tryLock: func(_ context.Context, key sqllock.Key) (*sqllock.Lock, error) {
			if key == sqllock.Namespace("export").SlotKey("ada", 0) {
				tries = append(tries, time.Now())
			}
			return nil, sqllock.ErrHeld
		}}
		l := ratelimit.AtMost(2, locks, "export", ratelimit.WithWait(time.Second, 1))
		if _, err := l.Acquire(t.Context(), "ada"); !errors.Is(err, ratelimit.ErrBusy) {
			t.Fatalf("got %v, want ErrBusy", err)
		}
		pauses := map[time.Duration]bool{}
		for i, longest := 1, 2*time.Millisecond; i < len(tries); i, longest = i+1, min(2*longest, 50*time.Millisecond) {
			pause := tries[i].Sub(tries[i-1])
			if pause <= longest/2-1 || pause > longest {
				t.Errorf("pause %d is %v, want from %v to %v", i, pause, longest/2, longest)
			}
			pauses[pause] = true
		}
		if len(tries) < 20 || len(pauses) < len(tries)/2 {
			t.Errorf("%d tries, %d different pauses: want more of both", len(tries), len(pauses))
		}
	})
}
