package ratelimit_test

import (
	"context"
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

// A failure of the database counts as one, even if the caller has left meanwhile.
func TestFailureWhileTheCallerLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	locks := failing(sqllock.ErrConfig)
	fail := locks.tryLock
	locks.tryLock = func(ctx context.Context, key sqllock.Key) (*sqllock.Lock, error) {
		leave()
		return fail(ctx, key)
	}
	l := ratelimit.OneAtATime(locks, "export")
	if _, err := l.Acquire(ctx, "ada"); !errors.Is(err, sqllock.ErrConfig) {
		t.Errorf("got %v, want ErrConfig", err)
	}
	if got := l.Stats().Requests; got[ratelimit.Failed] != 1 {
		t.Errorf("counted as %v, want Failed", got)
	}
}
