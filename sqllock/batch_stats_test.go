package sqllock

import (
	"database/sql"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
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

// Two statements are better than one if the callers take longer than a round trip.
func TestPace(t *testing.T) {
	var p batchStats
	p.roundTrip = 100 * time.Microsecond
	if p.halves(1000) {
		t.Error("halves is true before anything is known of the callers")
	}
	for range 100 {
		p.observe(100, 100*time.Microsecond)
	}
	tests := []struct {
		callers   int
		roundTrip time.Duration
		want      bool
	}{
		{512, 100 * time.Microsecond, true},
		{512, time.Millisecond, false},
		{50, 100 * time.Microsecond, false},
		{5000, time.Millisecond, true},
	}
	for _, tt := range tests {
		p.roundTrip = tt.roundTrip
		if got := p.halves(tt.callers); got != tt.want {
			t.Errorf("%d callers of 1 µs each, round trip %v: halves is %v", tt.callers, tt.roundTrip, got)
		}
	}
}
