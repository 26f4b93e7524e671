package ratelimit_test

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

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

// A lock that does not end by Unlock ends its hold as lost, with the cause.
func TestStatsOfLostLocks(t *testing.T) {
	t.Parallel()
	locks := sqllock.NewMemory()
	var j journal
	l := ratelimit.AtMost(2, locks, "export", ratelimit.WithObserver(j.observe))
	held := append(fill(t, l, "ada", 2), must(t, l, "grace"))
	if got := l.Stats(); got.Active != 3 || got.AtLimit != 1 || got.Oldest <= 0 {
		t.Errorf("%d active, %d at the limit, the oldest %v; want 3 and 1", got.Active, got.AtLimit, got.Oldest)
	}
	locks.Lose()
	if err := held[0].Unlock(); !errors.Is(err, sqllock.ErrLost) {
		t.Errorf("Unlock: %v, want ErrLost", err)
	}
	got := l.Stats()
	if got.Active != 0 || got.AtLimit != 0 || got.Oldest != 0 || got.Requests[ratelimit.Lost] != 3 {
		t.Errorf("%d active, %d at the limit, %d lost; want 0, 0 and 3", got.Active, got.AtLimit, got.Requests[ratelimit.Lost])
	}
	j.agree(t, got)
	if e := j.last(t, ratelimit.Lost); e.Err == nil {
		t.Error("the event of a loss has no cause")
	}
}
