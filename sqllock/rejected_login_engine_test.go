package sqllock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A Session whose login is rejected tries again soon, and less and less often,
// so that a server that counts such logins has few to count. While the server is
// only away it tries about each second.
func TestAttemptsWhileAway(t *testing.T) {
	for _, tt := range []struct {
		name        string
		failure     *dialect.Failure
		least, most int // attempts within ten minutes
	}{
		{"rejected", &dialect.Failure{Kind: dialect.Gone, Reason: "the password", Permanent: true}, 60, 135},
		{"away", &dialect.Failure{Kind: dialect.Gone, Reason: "starting"}, 600, 1250},
	} {
		t.Run(tt.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				server.mu.Lock()
				server.onOpen = func(int) error { return tt.failure }
				before := server.opens
				server.mu.Unlock()
				server.session(0).hooks(nil, func() error { return errGone })
				_, _ = s.TryLock(background, ID(1))
				count := func() int {
					server.mu.Lock()
					defer server.mu.Unlock()
					return server.opens - before
				}
				time.Sleep(time.Second)
				if n := count(); n < 4 {
					t.Errorf("%d attempts in the first second, want 4 at least", n)
				}
				time.Sleep(10 * time.Minute)
				if n := count(); n < tt.least || n > tt.most {
					t.Errorf("%d attempts in ten minutes, want %d to %d", n, tt.least, tt.most)
				}
				server.mu.Lock()
				server.onOpen = nil
				server.mu.Unlock()
				time.Sleep(backoffRejected)
				synctest.Wait()
				mustUnlock(t, mustTry(t, s, ID(1)))
			})
		})
	}
}
