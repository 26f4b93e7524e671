package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A plan is the limit of one id, which changes.
type plan struct{ n atomic.Int64 }

func newPlan(n int) *plan {
	p := &plan{}
	p.n.Store(int64(n))
	return p
}

func (p *plan) limit(context.Context, string) int { return int(p.n.Load()) }

// mustBeBusy reports an id of which one more request is admitted.
func mustBeBusy(t *testing.T, l *ratelimit.Limiter, id string) {
	t.Helper()
	lock, err := l.Acquire(t.Context(), id)
	if !errors.Is(err, ratelimit.ErrBusy) {
		t.Errorf("%s: got %v, want ErrBusy", id, err)
	}
	_ = lock.Unlock()
}

// Each id has its own limit, up to that of AtMost. The events and the figures
// have it.
func TestWithLimit(t *testing.T) {
	t.Parallel()
	limits := map[string]int{"free": 1, "pro": 3, "huge": 100}
	var j journal
	l := ratelimit.AtMost(4, sqllock.NewMemory(), "export", ratelimit.WithObserver(j.observe),
		ratelimit.WithLimit(func(_ context.Context, id string) int { return limits[id] }))
	for id, n := range limits {
		n = min(n, 4)
		for range n {
			must(t, l, id)
			if got := j.last(t, ratelimit.Admitted).Limit; got != n {
				t.Errorf("%s: limit %d of an admission, want %d", id, got, n)
			}
		}
		mustBeBusy(t, l, id)
		if got := j.last(t, ratelimit.Busy).Limit; got != n {
			t.Errorf("%s: limit %d of a rejection, want %d", id, got, n)
		}
	}
	if s := l.Stats(); s.AtLimit != 3 || l.Limit() != 4 {
		t.Errorf("%d ids at their limit, the highest limit is %d; want 3 and 4", s.AtLimit, l.Limit())
	}
	j.agree(t, l.Stats())
}

// WithLimit works with a Locker that acquires one key at a time, such as that of
// OnConn.
func TestWithLimitOfOneKey(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(4, onlyOne{sqllock.NewMemory()}, "export", ratelimit.WithLimit(newPlan(2).limit))
	fill(t, l, "ada", 2)
	mustBeBusy(t, l, "ada")
}

// After a limit was lowered, places above it that are still held do not count.
// After it was raised, more requests are admitted.
func TestLimitChanges(t *testing.T) {
	t.Parallel()
	p := newPlan(4)
	l := ratelimit.AtMost(4, sqllock.NewMemory(), "export", ratelimit.WithLimit(p.limit))
	held := fill(t, l, "ada", l.Limit())
	p.n.Store(2)
	mustBeBusy(t, l, "ada")
	if got := l.Stats().AtLimit; got != 1 {
		t.Errorf("%d ids at their limit, want the one that was lowered", got)
	}
	unlock(t, held[3])
	mustBeBusy(t, l, "ada") // the two places below the limit are held
	unlock(t, held[0])
	one := must(t, l, "ada") // beside the place above the limit that is still held
	mustBeBusy(t, l, "ada")
	p.n.Store(4)
	four := must(t, l, "ada")
	mustBeBusy(t, l, "ada")
	p.n.Store(3)
	unlock(t, four)
	mustBeBusy(t, l, "ada")
	unlock(t, one)
	must(t, l, "ada")
}

// A request that waits is admitted within 100 ms when its limit is raised. When
// it is lowered the request goes on to wait.
func TestLimitChangesWhileWaiting(t *testing.T) {
	for _, higher := range []int{3, 5} { // 5 is the highest that any id may have
		synctest.Test(t, func(t *testing.T) {
			p := newPlan(2)
			l := ratelimit.AtMost(5, sqllock.NewMemory(), "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(time.Minute, 2))
			held := fill(t, l, "ada", 2)
			next := acquire(t.Context(), l, "ada")
			time.Sleep(time.Second + time.Millisecond)
			p.n.Store(1)
			time.Sleep(time.Second)
			unlock(t, held[1])
			time.Sleep(time.Second) // the place below the limit is held
			select {
			case got := <-next:
				t.Fatalf("got %v under a lowered limit", got.err)
			default:
			}
			raised := time.Now()
			p.n.Store(int64(higher))
			got := <-next
			late := time.Since(raised)
			if got.err != nil || late > 100*time.Millisecond {
				t.Errorf("got %v, %v after the limit was raised", got.err, late)
			}
			unlock(t, got.lock)
		})
	}
}

// The limit of a request does not apply to what its holder asks the Locker for.
func TestLimitEndsWithTheCall(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	under := must(t, ratelimit.AtMost(2, locks, "export", ratelimit.WithLimit(newPlan(1).limit)), "ada").Context()
	must(t, ratelimit.AtMost(2, locks, "export"), "ada") // takes a place beyond that limit
	if _, err := lockertest.TryEach(under, locks, [][]sqllock.Key{{sqllock.ID(7)}}); err != nil {
		t.Errorf("a free key, under the context of the lock: %v", err)
	}
}

// A request that waits over a lowered limit is admitted soon after enough holds
// have ended. Those of its process wake it.
func TestWaitOverALoweredLimit(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p, locks := newPlan(3), sqllock.NewMemory()
			l := ratelimit.AtMost(3, locks, "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(time.Minute, 2))
			holder := l
			if elsewhere {
				holder = ratelimit.AtMost(3, locks, "export")
			}
			held := fill(t, holder, "ada", 3)
			p.n.Store(2)
			first, second := acquire(t.Context(), l, "ada"), acquire(t.Context(), l, "ada")
			for i, next := range []<-chan result{nil, first, second} {
				time.Sleep(time.Second)
				freed := time.Now()
				unlock(t, held[i])
				if next == nil {
					continue // two are still held
				}
				got := <-next
				if late := time.Since(freed); got.err != nil || late > 50*time.Millisecond || !elsewhere && late > 2*time.Millisecond {
					t.Errorf("waiter %d: %v, %v after a place was free", i, got.err, late)
				}
				defer unlock(t, got.lock)
			}
		})
	}
}

// A limit of zero or less is an error that says what to change, and not that
// the id is busy.
func TestLimitOfZero(t *testing.T) {
	for _, n := range []int{0, -3} {
		synctest.Test(t, func(t *testing.T) {
			p := newPlan(n)
			l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", ratelimit.WithLimit(p.limit), ratelimit.WithWait(time.Minute, 1))
			_, err := l.Acquire(t.Context(), "ada")
			if !errors.Is(err, ratelimit.ErrPolicy) || errors.Is(err, ratelimit.ErrBusy) || !strings.Contains(err.Error(), "WithLimit") || strings.Contains(err.Error(), "ada") {
				t.Errorf("got %v, want ErrPolicy of WithLimit", err)
			}
			total := ratelimit.OneAtATime(sqllock.NewMemory(), "total")
			if _, err := ratelimit.AcquireAll(t.Context(), level(total, "all"), level(l, "ada")); !errors.Is(err, ratelimit.ErrPolicy) || total.Stats().Requests[ratelimit.Admitted] != 0 {
				t.Errorf("got %v for a stack, want ErrPolicy and nothing acquired", err)
			}
			p.n.Store(1)
			lock := must(t, l, "ada")
			waits := acquire(t.Context(), l, "ada")
			p.n.Store(int64(n))
			if got := <-waits; !errors.Is(got.err, ratelimit.ErrPolicy) || got.took > 100*time.Millisecond {
				t.Errorf("waiting: got %v after %v, want ErrPolicy", got.err, got.took)
			}
			unlock(t, lock)
			if got := l.Stats(); got.Requests[ratelimit.Failed] != 3 || got.Queued != 0 {
				t.Errorf("%d failed, %d wait; want 3 and none", got.Requests[ratelimit.Failed], got.Queued)
			}
		})
	}
}

// A func that panics gives the panic to its caller. It loses no lock and no
// place in line, and the next request goes on.
func TestLimitPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", ratelimit.WithWait(time.Minute, 2),
			ratelimit.WithLimit(func(ctx context.Context, _ string) int {
				if panics.Load() && ctx.Value(panicKey{}) != nil {
					panic("limit")
				}
				return 1
			}))
		held := must(t, l, "ada")
		ctx := context.WithValue(t.Context(), panicKey{}, true)
		recovered := make(chan any, 1)
		go func() {
			defer func() { recovered <- recover() }()
			_, _ = l.Acquire(ctx, "ada")
		}()
		synctest.Wait()
		next := acquire(t.Context(), l, "ada")
		panics.Store(true)
		if got := <-recovered; got != "limit" {
			t.Fatalf("recovered %v, want the panic of the func", got)
		}
		if n := l.Stats().Queued; n != 1 {
			t.Errorf("%d wait, want the other one", n)
		}
		unlock(t, held)
		end(t, <-next)
		unlock(t, must(t, l, "ada"))
	})
}

type panicKey struct{}

// A func that blocks holds up its own request, and no other: not those of other
// ids, not the Stats, and not those that wait behind it.
func TestLimitBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		var blocks atomic.Bool
		l := ratelimit.AtMost(2, sqllock.NewMemory(), "export", ratelimit.WithWait(time.Minute, 2),
			ratelimit.WithLimit(func(ctx context.Context, _ string) int {
				if blocks.Load() && ctx.Value(panicKey{}) != nil {
					<-gate
				}
				return 1
			}))
		held := must(t, l, "ada")
		slow := acquire(context.WithValue(t.Context(), panicKey{}, true), l, "ada")
		behind := acquire(t.Context(), l, "ada")
		blocks.Store(true)
		time.Sleep(time.Second)
		unlock(t, held)
		end(t, <-behind)
		unlock(t, must(t, l, "grace"))
		unlock(t, must(t, l, "ada"))
		if n := l.Stats().Queued; n != 1 {
			t.Errorf("%d wait, want the one whose func blocks", n)
		}
		close(gate)
		end(t, <-slow)
	})
}
