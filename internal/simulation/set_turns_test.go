package simulation

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
// again and again. So do the other callers, taken together: which of them gets the
// key that is given back is chance.
func TestSetsAmongTries(t *testing.T) {
	for _, workers := range []int{1, 2, 8} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.far(20 * time.Millisecond)
			ctx, cancel := context.WithCancel(background)
			var tries sync.WaitGroup
			var granted atomic.Int64
			for range workers {
				tries.Go(func() {
					for ctx.Err() == nil {
						lock, err := s.TryLock(background, sqllock.ID(1))
						switch {
						case err == nil:
							granted.Add(1)
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
			if n := granted.Load(); n < 10 {
				t.Errorf("%d TryLock of %d callers were granted among 60 sets", n, workers)
			}
		})
	}
}

// A set and a request for one of its keys are served in the order of their
// arrival.
func TestOrderOfSetsAndTries(t *testing.T) {
	for _, setFirst := range []bool{false, true} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			hook, resume := hold(t)
			st.conn(0).hooks(hook, nil)
			busy := beginTry(background, s, sqllock.ID(9)) // its statement is under way
			begins := []func() <-chan called{
				func() <-chan called { return beginTry(background, s, sqllock.ID(1)) },
				func() <-chan called {
					return begin(func() (sqllock.Locks, error) { return s.TryLockAll(background, ids(1, 2)...) })
				},
			}
			if setFirst {
				slices.Reverse(begins)
			}
			first, second := begins[0](), begins[1]()
			resume()
			wantReturned(t, "the call whose statement was under way", busy, nil)
			wantReturned(t, "the first call", first, nil)
			wantReturned(t, "the second call", second, sqllock.ErrHeld)
		})
	}
}

// A set is rejected at once if callers wait for one of its keys, whoever tries
// for that key, too.
func TestSetAmongReadersThatWait(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(1))
		st.far(20 * time.Millisecond)
		ctx, cancel := context.WithCancel(background)
		waiting := begin(func() (sqllock.Locks, error) { return one(s.RLock(ctx, sqllock.ID(1))) })
		var tries sync.WaitGroup
		tries.Go(func() {
			for ctx.Err() == nil {
				wantErr(t, "TryRLock", second(s.TryRLock(background, sqllock.ID(1))), sqllock.ErrHeld)
			}
		})
		time.Sleep(responseBound)
		for range 20 {
			began := time.Now()
			wantErr(t, "TryLockAll", second(s.TryLockAll(background, ids(1, 2)...)), sqllock.ErrHeld)
			if took := time.Since(began); took > 50*time.Millisecond {
				t.Errorf("TryLockAll took %v, more than two round trips", took)
			}
		}
		cancel()
		tries.Wait()
		<-waiting
	})
}

// A set does not overtake a call that waits for one of its keys, which has become
// free elsewhere.
func TestSetBehindACallThatWaits(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(1))
		waiting := beginLock(background, s, sqllock.ID(1))
		time.Sleep(responseBound)
		st.giveUp(sqllock.ID(1))
		wantErr(t, "TryLockAll", second(s.TryLockAll(background, ids(1, 2)...)), sqllock.ErrHeld)
		time.Sleep(ticks)
		granted(t, "Lock", waiting)
	})
}

// Calls for other keys than those of a call that waits are calls of their own,
// also if the first keys are the same.
func TestCallsWithTheSameFirstKey(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, _ *stage) {
		mustTry(t, s, sqllock.ID(1))
		mustTry(t, s, sqllock.ID(2))
		ctx, cancel := context.WithCancel(background)
		waiting := begin(func() (sqllock.Locks, error) { return one(s.LockAny(ctx, ids(1, 2)...)) })
		wantErr(t, "TryAny", second(s.TryAny(background, ids(1, 3)...)), nil)
		cancel()
		<-waiting
	})
}

// A burst of stacks shares the keys that are free, in a few statements.
func TestStacksShareWhatIsFree(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		const limit, free, callers = 500, 50, 40
		elsewhere := ratelimit.AtMost(limit, st.another(t), "all")
		for range limit - free {
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
