package sqllock_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A set waits for a key that another connection of the Session is giving back.
// It gets the key as soon as that is done, although its own connection has been
// quiet.
func TestSetAfterReleaseOfOtherConnection(t *testing.T) {
	t.Parallel()
	s := session(t, "pgx", pgtest.Database(t), sqllock.WithMaxConns(2))
	var first *sqllock.Lock
	for i := range 1000 { // the first connection is full
		first = mustLock(t, s, sqllock.ID(int64(i)))
	}
	key, free := sqllock.ID(-1), sqllock.ID(-2)
	lockertest.Eventually(t, "there is another connection", func() bool {
		if err := mustLock(t, s, key).Unlock(); err != nil {
			t.Fatal(err)
		}
		return len(s.Connections()) == 2
	})
	for range 5 {
		lock := mustLock(t, s, key)
		if held := s.Connections()[1].Held; len(held) != 1 {
			t.Fatalf("the other connection has the keys %v, want one", held)
		}
		if err := first.Unlock(); err != nil { // the first connection has room for the set
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // it is quiet
		go func() { _ = lock.Unlock() }()
		for {
			locks, err := s.TryLockAll(t.Context(), key, free)
			if errors.Is(err, sqllock.ErrHeld) {
				continue
			}
			if err != nil {
				t.Fatalf("TryLockAll: %v, want locks", err)
			}
			if err := locks.Unlock(); err != nil {
				t.Fatal(err)
			}
			break
		}
		first = mustLock(t, s, sqllock.ID(999))
	}
}

// A burst of callers fills the first connection. The rest of them go to the next
// one at once.
func TestBurstGoesToTheNextConnection(t *testing.T) {
	t.Parallel()
	s := session(t, "pgx", pgtest.Database(t), sqllock.WithMaxConns(2))
	var first *sqllock.Lock
	for i := range 1000 { // the first connection is full
		first = mustLock(t, s, sqllock.ID(int64(i)))
	}
	lockertest.Eventually(t, "there is another connection", func() bool {
		if err := mustLock(t, s, sqllock.ID(-1)).Unlock(); err != nil {
			t.Fatal(err)
		}
		return len(s.Connections()) == 2
	})
	if err := first.Unlock(); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var locks sqllock.Locks
		start := make(chan struct{})
		for i := range 900 {
			wg.Go(func() {
				<-start
				lock, err := s.TryLock(t.Context(), sqllock.ID(int64(2000+i)))
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("TryLock: %v, want a lock", err)
				}
				locks = append(locks, lock)
			})
		}
		close(start)
		wg.Wait()
		if t.Failed() {
			break
		}
		for _, l := range locks {
			wg.Go(func() { _ = l.Unlock() })
		}
		wg.Wait()
	}
}
