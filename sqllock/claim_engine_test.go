package sqllock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A new connection has no claim before it has asked for it: somebody with
// another secret may have come while there was none. When they have gone, all is
// served again, those who wait included.
func TestClaimAfterLoss(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		secret := Namespace("payouts").Keyed([]byte("one"))
		mustTry(t, s, secret.Key("ann"))
		ours := *s.claimOf(secret.Key("ann"))
		theirs := ours.Claim
		theirs.Print++

		server.onOpen = func(int) error { // between the two connections
			server.mu.Lock()
			defer server.mu.Unlock()
			server.claims[theirs] = &fakeSession{}
			return nil
		}
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		synctest.Wait()
		mustUnlock(t, mustTry(t, s, ID(1)))
		if _, err := s.TryLock(background, secret.Key("ben")); !errors.Is(err, ErrNotExclusive) {
			t.Errorf("TryLock: %v, want ErrNotExclusive", err)
		}
		if _, err := s.TryAny(background, secret.Key("ben"), ID(2)); !errors.Is(err, ErrNotExclusive) {
			t.Errorf("TryAny: %v, want ErrNotExclusive", err)
		}
		waiter := begin(func() (*Lock, error) { return s.Lock(background, secret.Key("ben")) })
		either := begin(func() (*Lock, error) { return s.LockAny(background, secret.Key("cat"), secret.Key("dan")) })
		time.Sleep(ticks)
		pending(t, "Lock", waiter)
		pending(t, "LockAny", either)
		server.mu.Lock()
		delete(server.claims, theirs)
		server.mu.Unlock()
		time.Sleep(claimPause + pollAway)
		wantErr(t, "who waited", returned(t, "Lock", waiter), nil)
		wantErr(t, "who waited for either", returned(t, "LockAny", either), nil)
	})
}

// The claim is asked for once, and while it is disputed now and then, however
// many ask for keys.
func TestClaimIsCheap(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		one, other := Namespace("payouts").Keyed([]byte("one")), Namespace("payouts").Keyed([]byte("other"))
		for range 100 {
			mustUnlock(t, mustTry(t, s, one.Key("ann")))
		}
		session := server.session(0)
		if session.claims != 1 {
			t.Errorf("%d questions for one claim", session.claims)
		}
		for range 1000 {
			if _, err := s.TryLock(background, other.Key("ann")); !errors.Is(err, ErrNotExclusive) {
				t.Fatalf("TryLock: %v, want ErrNotExclusive", err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := session.claims - 1; n < 2 || n > 5 {
			t.Errorf("%d questions for a disputed claim in a second", n)
		}
	}, WithLease(time.Hour))
}

func (s *Session) claimOf(key Key) *claim {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.claimLocked(key)
}
