package simulation

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/ratelimit"
	"github.com/latchkey-go/latchkey/sqllock"
)

// far gives the responses of st's connection this delay, as a network does.
func (st *stage) far(delay time.Duration) {
	st.conn(0).hooks(nil, func() error { time.Sleep(delay); return nil })
}

// A set gets its turn while other callers of the process try for one of its keys
// again and again. So do the other callers.
func TestSetsAmongTries(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.far(20 * time.Millisecond)
			ctx, cancel := context.WithCancel(background)
			var tries sync.WaitGroup
			granted := make([]int, workers)
			for i := range workers {
				tries.Go(func() {
					for ctx.Err() == nil {
						lock, err := s.TryLock(background, sqllock.ID(1))
						switch {
						case err == nil:
							granted[i]++
							_ = lock.Unlock()
						case !errors.Is(err, sqllock.ErrHeld):
							t.Errorf("TryLock: %v", err)
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			sets := 0
			for range 50 {
				locks, err := s.TryLockAll(background, sqllock.ID(1), sqllock.ID(2))
				switch {
				case err == nil:
					sets++
					_ = locks.Unlock()
				case !errors.Is(err, sqllock.ErrHeld):
					t.Errorf("TryLockAll: %v", err)
				}
				time.Sleep(time.Millisecond)
			}
			for range 10 {
				waits, end := context.WithTimeout(background, time.Second)
				locks, err := s.LockAll(waits, sqllock.ID(1), sqllock.ID(2))
				if err != nil {
					t.Errorf("LockAll among %d callers: %v", workers, err)
				}
				_ = locks.Unlock()
				end()
			}
			cancel()
			tries.Wait()
			if sets < 10 {
				t.Errorf("%d of 50 TryLockAll were granted among %d callers", sets, workers)
			}
			for i, n := range granted {
				if n == 0 {
					t.Errorf("caller %d of %d was never granted the key", i, workers)
				}
			}
		})
	}
}

// A burst of stacks shares the keys that are free, in a few statements.
func TestStacksShareWhatIsFree(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		const limit, callers = 500, 200
		elsewhere := ratelimit.AtMost(limit, st.another(t), "all")
		for range limit / 2 {
			if _, err := elsewhere.Acquire(background, "x"); err != nil {
				t.Fatal(err)
			}
		}
		st.far(10 * time.Millisecond)
		user, all := ratelimit.OneAtATime(s, "user"), ratelimit.AtMost(limit, s, "all")
		before := s.Stats().Exchanges
		var burst sync.WaitGroup
		for i := range callers {
			burst.Go(func() {
				_, err := ratelimit.AcquireAll(background, ratelimit.Level{Limiter: user, ID: strconv.Itoa(i)}, ratelimit.Level{Limiter: all, ID: "x"})
				if err != nil {
					t.Errorf("a stack: %v", err)
				}
			})
		}
		burst.Wait()
		if n := s.Stats().Exchanges - before; n > 10 {
			t.Errorf("%d stacks took %d statements", callers, n)
		}
	})
}

// A call that began to wait while the database was away is served once it is
// back.
func TestSetWaitsForTheDatabase(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.onOpen(func(int) error { return errGone })
		st.conn(0).hooks(nil, fail(errGone))
		_, _ = s.TryLock(background, sqllock.ID(1))
		time.Sleep(2 * responseBound)
		wantErr(t, "TryLock while the database is away", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrUnavailable)
		waiting := begin(func() (sqllock.Locks, error) { return s.LockAll(background, sqllock.ID(1), sqllock.ID(2)) })
		time.Sleep(responseBound)
		st.onOpen(nil)
		time.Sleep(ticks)
		granted(t, "LockAll once the database is back", waiting)
	})
}
