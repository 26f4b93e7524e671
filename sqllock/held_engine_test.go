package sqllock

import (
	"testing"
	"testing/synctest"
	"time"
)

// Held is false from the moment at which the lease has passed, before any timer
// has told of it.
func TestHeldAfterTheLease(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		ctx, unbind := lock.Bind(t.Context())
		defer unbind()
		hook, resume := hold(t)
		server.session(0).hooks(hook, nil)
		c := lock.life.(*connection)
		c.deadline.Store(int64(now() + time.Second))
		time.Sleep(time.Second - 1)
		if !Held(ctx, ID(1)) {
			t.Error("the lock is not held before the end of its lease")
		}
		time.Sleep(time.Nanosecond)
		if Held(ctx, ID(1)) {
			t.Error("the lock is held after its lease")
		}
		resume()
		synctest.Wait()
	})
}
