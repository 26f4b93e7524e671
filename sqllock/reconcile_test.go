package sqllock

import (
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A release whose statement fails on a session that lives is sent again, until
// the database no longer holds the lock. Unlock returns after that.
func TestReleaseIsSentAgainAfterAnError(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		lock := mustTry(t, s, ID(1))
		db := server.session(0)
		hook, resume := hold(t)
		failures := 0
		db.hooks(func() error {
			if failures++; failures < 3 {
				return &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
			}
			return hook()
		}, nil)
		unlocked := beginUnlock(lock)
		pending(t, "Unlock while the database holds the lock", unlocked)
		if n := server.held(); n != 1 {
			t.Fatalf("%d locks in the database, want 1", n)
		}
		resume()
		wantErr(t, "Unlock", returned(t, "Unlock", unlocked), nil)
		synctest.Wait()
		if n := server.held(); n != 0 {
			t.Errorf("%d locks are left in the database", n)
		}
		if n := s.Stats().Losses; n != 0 {
			t.Errorf("%d connections were lost", n)
		}
	})
}
