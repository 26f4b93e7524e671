package ratelimit_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	one := must(t, l, "ada") // next to the place above the limit that is still held
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
			unlock(t, got.locks[0])
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
