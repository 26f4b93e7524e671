package simulation

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A TryLock that meets a request under way for its key gets the grant if the
// first caller has given up. A denial may be older than the call. So the key is
// requested again, once for all calls that came meanwhile.
func TestTryLockJoins(t *testing.T) {
	tests := []struct {
		name               string
		heldElsewhere      bool
		giveUp             bool
		first, second      error
		third              error
		statements, locked int
	}{
		{"granted", false, false, nil, sqllock.ErrHeld, sqllock.ErrHeld, 1, 1},
		{"held elsewhere", true, false, sqllock.ErrHeld, sqllock.ErrHeld, sqllock.ErrHeld, 2, 1},
		{"given up", false, true, context.Canceled, nil, sqllock.ErrHeld, 1, 1},
		{"given up and held elsewhere", true, true, context.Canceled, sqllock.ErrHeld, sqllock.ErrHeld, 2, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
				if tt.heldElsewhere {
					st.steal(sqllock.ID(1))
				}
				hook, resume := hold(t)
				st.conn(0).hooks(hook, nil)
				ctx, cancel := context.WithCancel(background)
				defer cancel()
				first := beginTry(ctx, s, sqllock.ID(1))
				second := beginTry(background, s, sqllock.ID(1))
				third := beginTry(background, s, sqllock.ID(1))
				if tt.giveUp {
					cancel()
					wantReturned(t, "the first, which gave up", first, tt.first)
				}
				pending(t, "the second", second)
				resume()
				if !tt.giveUp {
					wantReturned(t, "first", first, tt.first)
				}
				wantReturned(t, "second", second, tt.second)
				wantReturned(t, "third", third, tt.third)
				if n := len(st.conn(0).sent()); n != tt.statements {
					t.Errorf("%d statements, want %d", n, tt.statements)
				}
				if n := st.held(); n != tt.locked {
					t.Errorf("%d locks at the server, want %d", n, tt.locked)
				}
			})
		})
	}
}

// The callers of a process hand a key on among themselves for a second. Then they
// give it back, and wait a little before they request it, so that other processes
// can get it.
func TestHandOverYields(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		statements := len(st.conn(0).sent())
		for i := range 20 {
			next := beginLock(background, s, sqllock.ID(1))
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			mustUnlock(t, lock)
			got := <-next
			wantErr(t, "Lock", got.err, nil)
			lock = got.locks[0]
			away := time.Since(before)
			n := len(st.conn(0).sent()) - statements
			if lasted := i%10 == 9; !lasted && (away != 0 || n != 0) {
				t.Errorf("hand-over %d took %v and %d statements, want none", i, away, n)
			} else if lasted && (away < 48*time.Millisecond || away > 200*time.Millisecond || n != 2) {
				t.Errorf("after a second the key was taken again after %v, with %d statements; want 48 ms or more, and 2", away, n)
			}
			statements += n
		}
	})
}

// When the first in line leaves, the next one still gets a key that another
// process releases.
func TestWaiterBehindOneThatLeaves(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(1))
		ctx, cancel := context.WithCancel(background)
		first, second := beginLock(ctx, s, sqllock.ID(1)), beginLock(background, s, sqllock.ID(1))
		time.Sleep(fairness)
		cancel()
		wantReturned(t, "the first", first, context.Canceled)
		time.Sleep(fairness)
		st.giveUp(sqllock.ID(1))
		time.Sleep(pollMost)
		mustUnlock(t, granted(t, "the second", second))
	})
}

// A TryLock does not overtake waiters, even while the key is free. Nor does a call
// for one key of each of several groups.
func TestTryLockDoesNotPassWaiters(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(1))
		waiting := beginLock(background, s, sqllock.ID(1))
		st.giveUp(sqllock.ID(1))
		sent := len(st.conn(0).sent())
		wantErr(t, "TryLock beside a waiter", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrHeld)
		wantErr(t, "TryAny beside a waiter", second(s.TryAny(background, ids(1)...)), sqllock.ErrHeld)
		each := begin(func() (sqllock.Locks, error) {
			return lockertest.TryEach(background, s, [][]sqllock.Key{ids(2), ids(1)})
		})
		wantFull(t, each, 1)
		if n := len(st.conn(0).sent()) - sent; n != 0 {
			t.Errorf("%d statements for calls that may not overtake", n)
		}
		time.Sleep(pollMost)
		mustUnlock(t, granted(t, "Lock", waiting))
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
	})
}
