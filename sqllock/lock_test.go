package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// Do and DoAll run the function under all keys or not at all, and release them.
// They return its error, and the loss of a lock.
func TestDo(t *testing.T) {
	t.Parallel()
	keys := []sqllock.Key{sqllock.ID(1), sqllock.Pair(0, 1), sqllock.ID(2)}
	failed := errors.New("failed")
	type work = func(ctx context.Context) error
	for name, do := range map[string]func(m *sqllock.Memory, fn work) error{
		"Do":    func(m *sqllock.Memory, fn work) error { return sqllock.Do(t.Context(), m, keys[1], fn) },
		"DoAll": func(m *sqllock.Memory, fn work) error { return sqllock.DoAll(t.Context(), m, keys, fn) },
	} {
		for _, tt := range []struct {
			name string
			held bool // before
			end  func(m *sqllock.Memory) error
			want []error
		}{
			{"nil", false, func(*sqllock.Memory) error { return nil }, nil},
			{"error", false, func(*sqllock.Memory) error { return failed }, []error{failed}},
			{"lost", false, func(m *sqllock.Memory) error { m.Lose(); return nil }, []error{sqllock.ErrLost}},
			{"lost, error", false, func(m *sqllock.Memory) error { m.Lose(); return failed }, []error{sqllock.ErrLost, failed}},
			{"panic", false, func(*sqllock.Memory) error { panic(failed) }, []error{failed}},
			{"held", true, func(*sqllock.Memory) error { t.Errorf("%s ran without the lock", name); return nil }, []error{sqllock.ErrHeld}},
		} {
			m := sqllock.NewMemory()
			left := t.Context()
			var before *sqllock.Lock
			if tt.held {
				before = mustLock(t, m, keys[1])
			}
			err := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = p.(error)
					}
				}()
				return do(m, func(ctx context.Context) error {
					left = ctx
					if lock, ok := sqllock.FromContext(ctx, keys[1]); !ok || lock.Key() != keys[1] {
						t.Errorf("%s: the context does not carry the lock", name)
					}
					if _, err := m.TryLock(t.Context(), keys[1]); !errors.Is(err, sqllock.ErrHeld) {
						t.Errorf("%s: TryLock meanwhile: %v", name, err)
					}
					return tt.end(m)
				})
			}()
			if (err == nil) != (tt.want == nil) {
				t.Errorf("%s, %s: %v", name, tt.name, err)
			}
			for _, want := range tt.want {
				if !errors.Is(err, want) {
					t.Errorf("%s, %s: %v, want %v", name, tt.name, err, want)
				}
			}
			if !tt.held && left.Err() == nil {
				t.Errorf("%s, %s: the context outlives the call", name, tt.name)
			}
			unlock(t, before)
			for _, key := range keys {
				unlock(t, mustLock(t, m, key))
			}
		}
	}
}

// A hook that panics does not keep the other locks of Locks from being
// released, whether they are of one locker or of several. The panic goes on in
// the caller of Unlock.
func TestPanicInOnEndOfSeveral(t *testing.T) {
	t.Parallel()
	one := sqllock.NewMemory()
	for name, lockers := range map[string][]*sqllock.Memory{
		"one lock":    {one},
		"one locker":  {one, one, one},
		"two lockers": {one, sqllock.NewMemory(), one},
	} {
		for at := range lockers {
			var locks sqllock.Locks
			for i, m := range lockers {
				locks = append(locks, mustLock(t, m, sqllock.ID(int64(i))))
			}
			locks[at].OnEnd(func(error) { panic("metrics") })
			func() {
				defer func() {
					if p := recover(); p != "metrics" {
						t.Errorf("%s, lock %d: recovered %v", name, at, p)
					}
				}()
				_ = locks.Unlock()
			}()
			for i, lock := range locks {
				if !errors.Is(lock.Err(), sqllock.ErrReleased) {
					t.Errorf("%s, panic %d: lock %d has %v", name, at, i, lock.Err())
				}
			}
			if err := locks.Unlock(); err != nil {
				t.Errorf("%s, lock %d: Unlock again: %v", name, at, err)
			}
		}
	}
}

// Two callers unlock the same locks at the same time, in different orders, and
// one names a lock twice. Neither waits for the other.
func TestUnlockOfTheSameLocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		a, b := mustLock(t, m, sqllock.ID(1)), mustLock(t, m, sqllock.ID(2))
		endedA, endedB := make(chan struct{}), make(chan struct{}) // each caller ends one of the locks before either goes on
		a.OnEnd(func(error) { close(endedA); <-endedB })
		b.OnEnd(func(error) { close(endedB); <-endedA })
		results := make(chan error)
		go func() { results <- sqllock.Locks{a, b, a}.Unlock() }()
		go func() { results <- sqllock.Locks{b, a}.Unlock() }()
		if err := errors.Join(<-results, <-results); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		unlock(t, mustLock(t, m, sqllock.ID(1)))
		unlock(t, mustLock(t, m, sqllock.ID(2)))
	})
}

// A set that waits in Memory is granted when the last of its keys is unlocked,
// and not by a timer.
func TestMemoryLockAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		a, b := mustLock(t, m, sqllock.ID(1)), mustLock(t, m, sqllock.ID(2))
		granted := make(chan sqllock.Locks, 1)
		go func() {
			locks, err := m.LockAll(t.Context(), sqllock.ID(1), sqllock.ID(2))
			if err != nil {
				t.Error(err)
			}
			granted <- locks
		}()
		synctest.Wait()
		unlock(t, a)
		synctest.Wait()
		if len(granted) > 0 {
			t.Fatal("a set is granted with one of its keys held")
		}
		unlock(t, mustLock(t, m, sqllock.ID(1))) // the set holds nothing meanwhile
		began := time.Now()
		unlock(t, b)
		locks := <-granted
		if took := time.Since(began); took > 0 {
			t.Errorf("granted after %v", took)
		}
		if err := locks.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A lock that Memory loses ends as a Session's lock does: for its holder, its
// contexts and its hooks. Only then does a waiting call get the key.
func TestMemoryLose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, ctx := sqllock.NewMemory(), t.Context()
		var held sqllock.Locks
		took := func(lock *sqllock.Lock, err error) {
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, lock)
		}
		took(m.TryLock(ctx, sqllock.ID(1)))
		took(m.RLock(ctx, sqllock.ID(2)))
		took(m.TryRLock(ctx, sqllock.ID(2)))
		took(m.TryAny(ctx, sqllock.ID(1), sqllock.ID(3)))
		set, err := m.LockAll(ctx, sqllock.ID(4), sqllock.ID(5))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, set...)
		released := mustLock(t, m, sqllock.ID(6))
		unlock(t, released)
		hooks, bound := make([]error, len(held)), make([]context.Context, len(held))
		for i, lock := range held {
			lock.OnEnd(func(cause error) { hooks[i] = cause })
			ctx, cancel := lock.Bind(t.Context())
			defer cancel()
			bound[i] = ctx
		}
		var before error // of the first lock, when the waiter is granted its key
		granted := make(chan *sqllock.Lock)
		go func() {
			lock, err := m.Lock(ctx, sqllock.ID(1))
			if before = held[0].Err(); err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		synctest.Wait()
		if lost := m.Lose(); lost != len(held) {
			t.Errorf("%d locks are lost, want %d", lost, len(held))
		}
		next := <-granted
		if !errors.Is(before, sqllock.ErrLost) {
			t.Errorf("two callers hold the key: Err of the first is %v", before)
		}
		unlock(t, next)
		for i, lock := range held {
			for what, err := range map[string]error{
				"Err": lock.Err(), "OnEnd": hooks[i], "Unlock": lock.Unlock(), "Unlock again": lock.Unlock(),
				"cause of Bind": context.Cause(bound[i]), "cause of Context": context.Cause(lock.Context()),
			} {
				if !errors.Is(err, sqllock.ErrLost) {
					t.Errorf("%s of lock %d: %v, want ErrLost", what, i, err)
				}
			}
		}
		if err := released.Err(); !errors.Is(err, sqllock.ErrReleased) {
			t.Errorf("a lock that was released before: %v, want ErrReleased", err)
		}
		for i := range 6 {
			unlock(t, mustLock(t, m, sqllock.ID(int64(i)+1)))
		}
		if lost := m.Lose(); lost != 0 {
			t.Errorf("%d locks are lost, with none held", lost)
		}
	})
}

// Two callers want the same keys at the same moment, in different orders. One
// of them gets the keys, because both try the same key first.
func TestOneOfTwoSetsIsGranted(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	sessions := []*sqllock.Session{session(t, "pgx", dsn), session(t, "postgres", dsn)}
	sets := [2][]sqllock.Key{}
	for i := range int64(50) {
		sets[0] = append(sets[0], sqllock.ID(i))
		sets[1] = append(sets[1], sqllock.ID(49-i))
	}
	for range 100 {
		granted := make(chan sqllock.Locks, 2)
		for i, s := range sessions {
			go func() {
				locks, err := s.TryLockAll(t.Context(), sets[i]...)
				if err != nil && !errors.Is(err, sqllock.ErrHeld) {
					t.Errorf("TryLockAll: %v", err)
				}
				granted <- locks
			}()
		}
		one, other := <-granted, <-granted
		if (one == nil) == (other == nil) {
			t.Fatalf("of two sets of the same keys both are held, or none: %d and %d locks", len(one), len(other))
		}
		if err := errors.Join(one.Unlock(), other.Unlock()); err != nil {
			t.Fatalf("Unlock: %v", err)
		}
	}
}
