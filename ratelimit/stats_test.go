package ratelimit_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Before the first request everything is 0, and each result is there.
func TestStatsOfANewLimiter(t *testing.T) {
	t.Parallel()
	var j journal
	got := ratelimit.OneAtATime(sqllock.NewMemory(), "export").Stats()
	j.agree(t, got)
	if got.Active != 0 || got.Queued != 0 || got.AtLimit != 0 || got.Oldest != 0 {
		t.Errorf("%+v", got)
	}
}

// The age of the oldest hold is that of the locks held now, in whatever order
// they end.
func TestOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := ratelimit.OneAtATime(sqllock.NewMemory(), "export")
		oldest := func(want time.Duration, active int) {
			t.Helper()
			if got := l.Stats(); got.Oldest != want || got.Active != active || got.AtLimit != active {
				t.Errorf("oldest %v of %d, %d at the limit; want %v of %d", got.Oldest, got.Active, got.AtLimit, want, active)
			}
		}
		var locks []*sqllock.Lock
		for i := range 4 {
			locks = append(locks, must(t, l, strconv.Itoa(i)))
			time.Sleep(time.Second)
		}
		oldest(4*time.Second, 4)
		unlock(t, locks[1])
		oldest(4*time.Second, 3)
		unlock(t, locks[0])
		oldest(2*time.Second, 2)
		unlock(t, locks[3])
		oldest(2*time.Second, 1)
		unlock(t, locks[2])
		oldest(0, 0)
		must(t, l, "0")
		oldest(1, 1) // as old as a clock can tell
	})
}

// An id is at its limit while this process holds as many locks as the limit
// allows. Ids count, not locks.
func TestAtLimit(t *testing.T) {
	t.Parallel()
	l := ratelimit.AtMost(2, sqllock.NewMemory(), "export")
	atLimit := func(want int) {
		t.Helper()
		if got := l.Stats().AtLimit; got != want {
			t.Errorf("%d ids at their limit, want %d", got, want)
		}
	}
	ada, grace := must(t, l, "ada"), must(t, l, "grace")
	atLimit(0)
	must(t, l, "ada")
	atLimit(1)
	must(t, l, "grace")
	atLimit(2)
	unlock(t, ada)
	atLimit(1)
	must(t, l, "ada")
	atLimit(2)
	unlock(t, grace)
	atLimit(1)
}

// Limiters of one namespace have figures of their own: Carried and the limit
// are shared, the figures are not.
func TestStatsOfOneNamespace(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	one, other := ratelimit.OneAtATime(locks, "export"), ratelimit.OneAtATime(locks, "export")
	must(t, one, "ada")
	if _, err := other.Acquire(t.Context(), "ada"); err == nil {
		t.Error("both limiters admit a request for one id")
	}
	if a, b := one.Stats(), other.Stats(); a.Active != 1 || b.Active != 0 || b.Requests[ratelimit.Busy] != 1 {
		t.Errorf("%d and %d active, %d busy at the second; want 1, 0 and 1", a.Active, b.Active, b.Requests[ratelimit.Busy])
	}
}

// Among many requests that are admitted, rejected, canceled and lost, each
// makes one decision, and each hold one end. The figures are the sums of the
// events.
func TestStatsAreTheSumsOfEvents(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			locks := sqllock.NewMemory()
			var j journal
			var calls atomic.Uint64
			l := ratelimit.AtMost(limit, locks, "export", ratelimit.WithWait(time.Millisecond, 4), ratelimit.WithObserver(j.observe))
			stop := make(chan struct{})
			var others, callers sync.WaitGroup
			others.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
						locks.Lose()
						if s := l.Stats(); s.AtLimit > s.Active || s.Queued > 3*4 || (s.Oldest == 0) != (s.Active == 0) {
							t.Errorf("%d at the limit of %d active, the oldest %v; %d wait", s.AtLimit, s.Active, s.Oldest, s.Queued)
						}
					}
				}
			})
			for range 16 {
				callers.Go(func() {
					for range 300 {
						calls.Add(1)
						oneRequest(l)
					}
				})
			}
			callers.Wait()
			close(stop)
			others.Wait()
			got := l.Stats()
			j.agree(t, got)
			decisions := uint64(0)
			for result, n := range got.Requests {
				if result != ratelimit.Released && result != ratelimit.Lost {
					decisions += n
				}
			}
			if decisions != calls.Load() {
				t.Errorf("%d decisions for %d requests", decisions, calls.Load())
			}
			if got.Active != 0 || got.AtLimit != 0 || got.Oldest != 0 || got.Queued != 0 {
				t.Errorf("nothing is held and nobody waits: %+v", got)
			}
			for _, r := range []ratelimit.Result{ratelimit.Admitted, ratelimit.Canceled, ratelimit.Failed, ratelimit.Released} {
				if got.Requests[r] == 0 {
					t.Errorf("no request was %s", r)
				}
			}
		})
	}
}

// oneRequest makes a request of a random kind.
func oneRequest(l *ratelimit.Limiter) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	id := strconv.Itoa(rand.IntN(3))
	switch rand.IntN(10) {
	case 0:
		cancel()
	case 1:
		id = ""
	case 2:
		time.AfterFunc(100*time.Microsecond, cancel)
	}
	lock, err := l.Acquire(ctx, id)
	if err != nil {
		return
	}
	if rand.IntN(4) == 0 {
		time.Sleep(time.Millisecond)
	}
	_ = lock.Unlock()
}

// On a database the end of the connection ends each hold as lost.
func TestStatsOfLostLocks(t *testing.T) {
	t.Parallel()
	for _, driver := range pgtest.Drivers() {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			s := session(t, driver, pgtest.Database(t))
			var j journal
			l := ratelimit.AtMost(2, s, "export", ratelimit.WithObserver(j.observe))
			for _, id := range []string{"ada", "ada", "grace"} {
				must(t, l, id)
			}
			if got := l.Stats(); got.Active != 3 || got.AtLimit != 1 || got.Oldest <= 0 {
				t.Errorf("%d active, %d at the limit, the oldest %v; want 3 and 1", got.Active, got.AtLimit, got.Oldest)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			got := l.Stats()
			if got.Active != 0 || got.AtLimit != 0 || got.Oldest != 0 || got.Requests[ratelimit.Lost] != 3 {
				t.Errorf("%d active, %d at the limit, %d lost; want 0, 0 and 3", got.Active, got.AtLimit, got.Requests[ratelimit.Lost])
			}
			j.agree(t, got)
			if e := j.last(t, ratelimit.Lost); e.Err == nil {
				t.Error("the event of a loss has no cause")
			}
		})
	}
}
