package sqllock

import (
	"testing"
	"time"
)

// An idle Session sends one statement in each heartbeat. Other statements count
// as heartbeats.
func TestHeartbeat(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		db := server.session(0)
		count := func() int {
			db.mu.Lock()
			defer db.mu.Unlock()
			return len(db.batches)
		}
		time.Sleep(time.Minute)
		if n := count(); n < 29 || n > 30 {
			t.Errorf("%d heartbeats in an idle minute, want 30", n)
		}
		for range 60 {
			mustUnlock(t, mustTry(t, s, ID(1)))
			time.Sleep(time.Second)
		}
		if n := count() - 30; n > 121 {
			t.Errorf("%d statements for 120 of traffic", n)
		}
		lock := mustTry(t, s, ID(1))
		time.Sleep(time.Hour)
		if err := lock.Err(); err != nil {
			t.Errorf("Err after an idle hour: %v", err)
		}
	}, WithHeartbeat(2*time.Second))
}
