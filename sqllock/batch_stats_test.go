package sqllock

import (
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// Of many requests that queue up, half go in one statement, and the others while
// the database works. No request is left behind, and no key is held twice.
func TestHalves(t *testing.T) {
	server := newFakeServer()
	s, err := Open(t.Context(), new(sql.DB), withFake(server), withoutLog())
	if err != nil {
		t.Fatal(err)
	}
	var (
		callers sync.WaitGroup
		holders [400]atomic.Int32
	)
	for caller := range 512 {
		callers.Go(func() {
			for n := range 20 {
				id := (caller + 7*n) % len(holders)
				lock, err := s.TryLock(background, ID(int64(id)))
				if errors.Is(err, ErrHeld) {
					continue
				}
				if err != nil {
					t.Errorf("TryLock: %v", err)
					return
				}
				if holders[id].Add(1) > 1 {
					t.Errorf("key %d is held twice", id)
				}
				runtime.Gosched()
				holders[id].Add(-1)
				if err := lock.Unlock(); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
		})
	}
	callers.Wait()
	if got := s.Stats(); got.Held != 0 || s.table.keys.len() != 0 || server.held() != 0 {
		t.Errorf("%d held, %d key states, %d in the database", got.Held, s.table.keys.len(), server.held())
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
