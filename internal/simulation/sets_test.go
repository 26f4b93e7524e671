package simulation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/inside"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A set takes one statement to acquire and one to give back, in any order of its
// keys. A key that is in the set twice is taken once.
func TestLockAllInOneStatement(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		locks, err := s.TryLockAll(background, sqllock.Pair(2, 1), sqllock.ID(5), sqllock.ID(-5), sqllock.ID(5))
		wantErr(t, "TryLockAll", err, nil)
		for i, want := range []sqllock.Key{sqllock.ID(-5), sqllock.ID(5), sqllock.Pair(2, 1)} {
			if len(locks) != 3 || locks[i].Key() != want || locks[i].Err() != nil {
				t.Fatalf("locks: %v", locks)
			}
		}
		if s.Stats().Held != 3 || locks.Err() != nil {
			t.Errorf("%d locks are held; Err: %v", s.Stats().Held, locks.Err())
		}
		wantErr(t, "Unlock", locks.Unlock(), nil)
		wantErr(t, "Err after Unlock", locks.Err(), sqllock.ErrReleased)
		if n := len(st.conn(0).sent()); n != 2 {
			t.Errorf("%d statements for a set, want 2", n)
		}
	})
}

// A set is denied if one of its keys is held, in this process or elsewhere. No
// lock of the set is left.
func TestLockAllOrNone(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(2))
		wantErr(t, "a set with a key held elsewhere", second(s.TryLockAll(background, ids(1, 2, 3)...)), sqllock.ErrHeld)
		if n := st.held(); n != 1 {
			t.Errorf("%d locks at the server, want that of the other", n)
		}
		sent := len(st.conn(0).sent())
		lock := mustTry(t, s, sqllock.ID(3))
		wantErr(t, "a set with a key held here", second(s.TryLockAll(background, ids(1, 3)...)), sqllock.ErrHeld)
		if n := len(st.conn(0).sent()) - sent; n != 1 {
			t.Errorf("%d statements, want that of TryLock alone", n)
		}
		mustUnlock(t, lock)
		st.giveUp(sqllock.ID(2))
		locks, err := s.TryLockAll(background, ids(1, 2, 3)...)
		wantErr(t, "a set that is free", err, nil)
		wantErr(t, "Unlock", locks.Unlock(), nil)
	})
}

// LockAll holds no lock while it waits. It returns when its context ends, and
// when the Session is closed.
func TestLockAllWaits(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.steal(sqllock.ID(2))
		ctx, cancel := context.WithTimeout(background, time.Second)
		defer cancel()
		wantErr(t, "LockAll whose time is up", second(s.LockAll(ctx, ids(1, 2)...)), context.DeadlineExceeded)
		if n := st.held(); n != 1 {
			t.Errorf("%d locks at the server, want that of the other", n)
		}
		time.AfterFunc(time.Second, func() { st.giveUp(sqllock.ID(2)) })
		wantErr(t, "LockAll", second(s.LockAll(background, ids(1, 2)...)), nil)
		waiting := begin(func() (sqllock.Locks, error) { return s.LockAll(background, ids(1, 2)...) })
		time.Sleep(time.Second)
		pending(t, "LockAll of keys that are held", waiting)
		wantErr(t, "Close", s.Close(), nil)
		wantReturned(t, "LockAll after Close", waiting, sqllock.ErrClosed)
	})
}

// The size of a set is limited by WithMaxHeld and by the room of a statement. A
// set for which there is no room now is denied.
func TestLockAllCapacity(t *testing.T) {
	for _, sc := range []script{{room: 3}, {opts: []sqllock.Option{sqllock.WithMaxHeld(3)}}} {
		sc.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			wantErr(t, "a set that is too large", second(s.TryLockAll(background, ids(1, 2, 3, 4)...)), sqllock.ErrCapacity)
			wantErr(t, "a set that waits, and is too large", second(s.LockAll(background, ids(1, 2, 3, 4)...)), sqllock.ErrCapacity)
			locks, err := s.TryLockAll(background, ids(1, 2)...)
			wantErr(t, "a set", err, nil)
			if sc.room == 0 {
				wantErr(t, "a set for which there is no room any more", second(s.TryLockAll(background, ids(4, 3)...)), sqllock.ErrCapacity)
			}
			wantErr(t, "Unlock", locks.Unlock(), nil)
			if _, err := s.TryLockAll(background); err == nil {
				t.Error("a set of no keys: no error")
			}
		})
	}
}

// LockAll waits on while the database is away or there is no room. Its error
// names the reason when its context ends.
func TestLockAllGoesOnWaiting(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		held := sqllock.Locks{mustTry(t, s, sqllock.ID(8)), mustTry(t, s, sqllock.ID(9))}
		waiting := begin(func() (sqllock.Locks, error) { return s.LockAll(background, ids(1, 2)...) })
		time.Sleep(time.Second)
		if s.Stats().Waiting != 1 {
			t.Errorf("%d wait", s.Stats().Waiting)
		}
		back := time.Now().Add(3 * time.Second)
		st.onOpen(func(int) error {
			if time.Now().Before(back) {
				return errGone
			}
			return nil
		})
		st.conn(0).hooks(fail(errGone), nil)
		_, _ = s.TryLock(background, sqllock.ID(7))
		ctx, cancel := context.WithTimeout(background, 2*time.Second)
		defer cancel()
		_, err := s.LockAll(ctx, ids(1, 2)...)
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, sqllock.ErrUnavailable) {
			t.Errorf("LockAll whose time is up while the database is away: %v", err)
		}
		wantErr(t, "LockAll", returned(t, "LockAll", after(10*time.Second, waiting)).locks.Err(), nil)
		wantErr(t, "Unlock of what was lost", held.Unlock(), sqllock.ErrLost)
	}, sqllock.WithMaxHeld(3))
}

// The methods of Locks report the loss of any lock of the set.
func TestLocksTellOfAny(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		m := sqllock.NewMemory()
		of := func(l sqllock.Locker, id int64) *sqllock.Lock {
			lock, err := l.TryLock(background, sqllock.ID(id))
			wantErr(t, "TryLock", err, nil)
			return lock
		}
		locks := sqllock.Locks{of(m, 1), of(s, 2), of(m, 3)}
		bound, done := locks.Bind(background)
		defer done()
		st.conn(0).hooks(fail(errGone), nil)
		_, _ = s.TryLock(background, sqllock.ID(7))
		synctest.Wait()
		wantErr(t, "Err", locks.Err(), sqllock.ErrLost)
		wantErr(t, "the cause", context.Cause(bound), sqllock.ErrLost)
		wantErr(t, "Unlock", locks.Unlock(), sqllock.ErrLost)
		for _, i := range []int{0, 2} {
			wantErr(t, "Err of another lock", locks[i].Err(), sqllock.ErrReleased)
		}
		some := sqllock.Locks{nil, of(m, 4), nil}
		wantErr(t, "Unlock beside nil", some.Unlock(), nil)
		if (sqllock.Locks)(nil).Err() != nil || (sqllock.Locks)(nil).Unlock() != nil {
			t.Error("no locks tell of a loss")
		}
	})
}

// wantFull fails the test unless the call has reported that group is full.
func wantFull(t *testing.T, call <-chan called, group int) {
	t.Helper()
	var full *inside.FullError
	if got := returned(t, "TryEach", call); !errors.As(got.err, &full) || full.Level != group {
		t.Fatalf("got %v, want group %d to be full", got.err, group)
	}
}

// One of many keys is found, though a statement tries few at first.
func TestOneOfManyKeys(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		var keys []sqllock.Key
		for i := range int64(1000) {
			keys = append(keys, sqllock.ID(i))
			st.steal(keys[i])
		}
		wantErr(t, "TryAny of keys that are held", second(s.TryAny(background, keys...)), sqllock.ErrHeld)
		waiting := begin(func() (sqllock.Locks, error) { return one(s.LockAny(background, keys...)) })
		st.giveUp(keys[777])
		time.Sleep(pollMost)
		mustUnlock(t, granted(t, "LockAny", waiting))
		lock, err := s.TryAny(background, keys...)
		wantErr(t, "TryAny", err, nil)
		if lock.Key() != keys[777] {
			t.Errorf("the lock of %v", lock.Key())
		}
		if n := len(st.conn(0).sent()); n > 9 {
			t.Errorf("%d statements", n)
		}
	})
}

// A call for too many groups is denied alone. Another caller that wants one of
// its keys gets the key.
func TestTryEachTooLargeAlone(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		hook, resume := hold(t)
		st.conn(0).hooks(hook, nil)
		busy := beginTry(t.Context(), s, sqllock.ID(9)) // its statement is under way
		each := func(groups ...[]sqllock.Key) <-chan called {
			return begin(func() (sqllock.Locks, error) { return lockertest.TryEach(t.Context(), s, groups) })
		}
		large, small := each(ids(1), ids(2), ids(3), ids(4)), each(ids(1))
		resume()
		wantReturned(t, "TryLock", busy, nil)
		wantReturned(t, "more groups than WithMaxHeld", large, sqllock.ErrCapacity)
		wantReturned(t, "a call for one of its keys", small, nil)
	}, sqllock.WithMaxHeld(3))
}

// A key that is in two groups is granted for one of them. Without another one
// the group is full.
func TestTryEachKeyInTwoGroups(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		for range 10 {
			locks, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{ids(1, 2), ids(2, 1)})
			wantErr(t, "two groups of the same two keys", err, nil)
			if locks[0].Key() == locks[1].Key() {
				t.Fatalf("one key is granted twice")
			}
			wantErr(t, "Unlock", locks.Unlock(), nil)
		}
		_, err := lockertest.TryEach(t.Context(), s, [][]sqllock.Key{ids(1), ids(1)})
		wantErr(t, "two groups of one key", err, sqllock.ErrHeld)
		if n := st.held(); n != 0 {
			t.Errorf("%d locks are left at the server", n)
		}
	})
}
