package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A lock that Memory loses ends as a Session's lock does: for its holder, its
// contexts and its hooks. The key is free after that.
func TestMemoryLose(t *testing.T) {
	t.Parallel()
	m := sqllock.NewMemory()
	alone := mustMemory(t)(m.TryLock(t.Context(), sqllock.ID(1)))
	reader := mustMemory(t)(m.TryRLock(t.Context(), sqllock.ID(2)))
	another := mustMemory(t)(m.TryRLock(t.Context(), sqllock.ID(2)))
	anyOf := mustMemory(t)(m.TryAny(t.Context(), sqllock.ID(1), sqllock.ID(3)))
	set, err := m.TryLockAll(t.Context(), sqllock.ID(4), sqllock.ID(5))
	if err != nil {
		t.Fatal(err)
	}
	released := mustMemory(t)(m.TryLock(t.Context(), sqllock.ID(6)))
	if err := released.Unlock(); err != nil {
		t.Fatal(err)
	}
	held := append(sqllock.Locks{alone, reader, another, anyOf}, set...)
	hooks := make([]error, len(held))
	bound := make([]context.Context, len(held))
	for i, lock := range held {
		lock.OnEnd(func(cause error) { hooks[i] = cause })
		ctx, cancel := lock.Bind(t.Context())
		defer cancel()
		bound[i] = ctx
	}

	if lost := m.Lose(); lost != len(held) {
		t.Errorf("%d locks are lost, want %d", lost, len(held))
	}
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
		if err := mustMemory(t)(m.TryLock(t.Context(), sqllock.ID(int64(i)+1))).Unlock(); err != nil {
			t.Errorf("key %d afterwards: %v", i+1, err)
		}
	}
	if lost := m.Lose(); lost != 0 {
		t.Errorf("%d locks are lost, with none held", lost)
	}
}

// A waiting call gets the key of a lost lock. The new lock is not lost.
func TestMemoryLoseWakesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := sqllock.NewMemory()
		first := mustMemory(t)(m.TryLock(t.Context(), sqllock.ID(1)))
		var before error // of the first lock, when the second is granted
		granted := make(chan *sqllock.Lock)
		go func() {
			lock, err := m.Lock(t.Context(), sqllock.ID(1))
			if before = first.Err(); err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
		synctest.Wait()
		if lost := m.Lose(); lost != 1 {
			t.Errorf("%d locks are lost, want 1", lost)
		}
		next := <-granted
		if !errors.Is(before, sqllock.ErrLost) {
			t.Errorf("two callers hold the key: Err of the first is %v", before)
		}
		if err := next.Unlock(); err != nil {
			t.Errorf("the next holder: %v", err)
		}
	})
}

// mustMemory returns a lock that is held, or fails the test.
func mustMemory(t *testing.T) func(*sqllock.Lock, error) *sqllock.Lock {
	t.Helper()
	return func(lock *sqllock.Lock, err error) *sqllock.Lock {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return lock
	}
}

// Readers share a key of a Memory, and a set waits for all of its keys.
func TestMemoryReadersAndSets(t *testing.T) {
	m := sqllock.NewMemory()
	var readers sqllock.Locks
	for range 2 {
		reader, err := m.RLock(t.Context(), sqllock.ID(1))
		if err != nil {
			t.Fatal(err)
		}
		readers = append(readers, reader)
	}
	set := make(chan sqllock.Locks)
	go func() {
		locks, err := m.LockAll(t.Context(), sqllock.ID(2), sqllock.ID(1))
		if err != nil {
			t.Errorf("LockAll: %v", err)
		}
		set <- locks
	}()
	lockertest.Eventually(t, "a call that waits", func() bool { return sqllock.InLine(m) == 1 })
	for _, reader := range readers {
		select {
		case <-set:
			t.Fatal("LockAll has returned beside a reader")
		default:
		}
		unlock(t, reader)
	}
	locks := <-set
	if _, err := m.TryRLock(t.Context(), sqllock.ID(1)); err != sqllock.ErrHeld {
		t.Errorf("TryRLock of a key of the set: %v", err)
	}
	if err := locks.Unlock(); err != nil {
		t.Error(err)
	}
}
