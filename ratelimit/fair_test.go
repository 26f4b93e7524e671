package ratelimit_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dbtest"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A user with many waiting requests delays the first one of another user by at
// most one of them, whether they wait in the line that the users share or in
// one of their own.
func TestFairness(t *testing.T) {
	for _, perUser := range []int{1, 2, 2000} {
		t.Run(strconv.Itoa(perUser), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { fairness(t, sqllock.NewMemory(), perUser, 1000) })
		})
	}
}

func TestFairnessOnASession(t *testing.T) {
	t.Parallel()
	for _, perUser := range []int{1, 2000} {
		fairness(t, dbtest.Session(t, "pgx", pgtest.Database(t)), perUser, 100)
	}
}

// fairness has ada wait with n requests for a total of one, and then grace with
// one.
func fairness(t *testing.T, locks sqllock.Locker, perUser, n int) {
	wait := ratelimit.WithWait(time.Hour, n)
	users := ratelimit.AtMost(perUser, locks, "user", wait)
	total := ratelimit.OneAtATime(locks, "total", wait)
	ctx, cancel := context.WithCancel(t.Context())
	served, release := make(chan string), make(chan struct{})
	var all sync.WaitGroup
	request := func(user string) {
		got, err := ratelimit.AcquireAll(ctx, level(users, user), level(total, "all"))
		if err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", user, err)
			}
			return
		}
		select {
		case served <- user:
			<-release
		case <-ctx.Done():
		}
		_ = got.Unlock()
	}
	queued := func(want int) {
		lockertest.Eventually(t, "the requests wait", func() bool { return users.Stats().Queued+total.Stats().Queued == want })
	}
	all.Go(func() { request("ada") })
	<-served
	for range n - 1 {
		all.Go(func() { request("ada") })
	}
	queued(n - 1)
	for range 3 { // some have been served when grace comes
		release <- struct{}{}
		<-served
	}
	queued(n - 4)
	all.Go(func() { request("grace") })
	queued(n - 3)
	if s, ok := locks.(*sqllock.Session); ok {
		lockertest.Eventually(t, "the first of each line waits in the Session", func() bool {
			return s.Stats().Waiting == min(users.Stats().Queued, 1)+min(total.Stats().Queued, 1)
		})
	} else {
		synctest.Wait()
	}
	for turn := 0; ; turn++ {
		release <- struct{}{}
		if user := <-served; user == "grace" {
			break
		}
		if turn == 1 {
			t.Error("grace waits for more than one request of ada")
			break
		}
	}
	release <- struct{}{}
	cancel()
	all.Wait()
	if s := total.Stats(); s.Active != 0 || s.Queued != 0 {
		t.Errorf("%d active, %d wait; want none", s.Active, s.Queued)
	}
}

// The places for waiting in the line of a stack belong to the id of its first
// level: one user cannot use up those of the others.
func TestWaitersOfAFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := sqllock.NewMemory()
		users := ratelimit.AtMost(9, locks, "user")
		total := ratelimit.OneAtATime(locks, "total", ratelimit.WithWait(time.Minute, 2))
		all := must(t, total, "all")
		var waits []<-chan result
		for _, user := range []string{"ada", "ada", "grace"} {
			waits = append(waits, stacked(t.Context(), level(users, user), level(total, "all")))
		}
		if got := <-stacked(t.Context(), level(users, "ada"), level(total, "all")); !errors.Is(got.err, ratelimit.ErrBusy) || got.took > 0 {
			t.Errorf("ada's third: %v after %v, want ErrBusy at once", got.err, got.took)
		}
		plain := acquire(t.Context(), total, "all") // those of single requests are apart
		if n := total.Stats().Queued; n != 4 {
			t.Errorf("%d wait, want 4", n)
		}
		unlock(t, all)
		served := make(chan result)
		for _, wait := range append(waits, plain) {
			go func() { served <- <-wait }()
		}
		for range 4 { // in some order
			end(t, <-served)
		}
	})
}

// A user who comes later stands behind the next request of each who waits, not
// before it, although those have been served more often.
func TestNewUserStandsBehindTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks, wait := sqllock.NewMemory(), ratelimit.WithWait(time.Hour, 10)
		users, total := ratelimit.AtMost(10, locks, "user", wait), ratelimit.OneAtATime(locks, "total", wait)
		request := func(user string) <-chan result {
			return stacked(t.Context(), level(users, user), level(total, "all"))
		}
		end := func(c <-chan result) {
			if r := <-c; r.err != nil || r.locks.Unlock() != nil {
				t.Fatal(r.err)
			}
			synctest.Wait()
		}
		first := request("bob")
		ada := []<-chan result{request("ada"), request("ada"), request("ada")}
		end(first)
		end(ada[0])
		grace := request("grace")
		end(ada[1])
		if len(ada[2]) != 1 || len(grace) != 0 {
			t.Error("grace has overtaken ada's next request")
		}
		end(ada[2])
		end(grace)
	})
}
