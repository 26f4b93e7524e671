package sqllock

import (
	"testing"
	"time"
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
