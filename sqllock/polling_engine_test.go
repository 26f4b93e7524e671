package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// Keys that wait long are requested together, in few statements.
func TestWaitersPollTogether(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		const keys = 20
		for i := range keys {
			server.steal(ID(int64(i)))
			begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(int64(i))) })
			time.Sleep(7 * time.Millisecond)
		}
		time.Sleep(time.Second)
		before := len(server.session(0).sent())
		time.Sleep(time.Second)
		sent := server.session(0).sent()[before:]
		if n := len(sent); n > int(2*time.Second/pollMax)+2 {
			t.Errorf("%d statements in a second, want one in half of %v at most", n, pollMax)
		}
		for _, b := range sent[1:] {
			if len(b.Try) != keys {
				t.Errorf("a statement requests %d keys, want all %d", len(b.Try), keys)
			}
		}
	})
}

// A key that was just denied is not requested along with others at once. Nor is
// one that this process leaves to others for a while, also for a bell.
func TestPollAlong(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		server.steal(ID(1))
		begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(1)) })
		tries := func() (n int) {
			for _, b := range server.session(0).sent() {
				for _, k := range b.Try {
					if k == (dialect.Key{ID: 1}) {
						n++
					}
				}
			}
			return n
		}
		mustUnlock(t, mustTry(t, s, ID(2)))
		if n := tries(); n != 1 {
			t.Errorf("%d tries at once, want 1", n)
		}
		time.Sleep(200 * time.Millisecond)
		for range 10 { // at some time in its pause
			before := tries()
			time.Sleep(alongAfter + time.Microsecond) // its pause may end meanwhile
			mustUnlock(t, mustTry(t, s, ID(2)))
			if n := tries() - before; n != 1 {
				t.Errorf("%d tries after a pause or beside other statements, want 1", n)
			}
		}
	})
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		begin(func() (*Lock, error) { return s.Lock(t.Context(), ID(1)) })
		time.Sleep(fairness)
		mustUnlock(t, lock) // and stays away for yieldFor
		synctest.Wait()
		before := len(server.session(0).sent())
		s.table.mu.Lock()
		s.table.pollAllLocked()
		s.table.mu.Unlock()
		mustUnlock(t, mustTry(t, s, ID(2)))
		for _, b := range server.session(0).sent()[before:] {
			if len(b.Try) > 0 && b.Try[0] == (dialect.Key{ID: 1}) {
				t.Error("a key was requested that this process leaves to others")
			}
		}
	})
}
