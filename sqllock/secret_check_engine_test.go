package sqllock

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
)

// A new connection has no claim before it has asked for it: somebody with
// another secret may have come while there was none. When they have gone, all is
// served again, those who wait included.
func TestClaimAfterLoss(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		secret := Namespace("payouts").Keyed([]byte("one"))
		mustTry(t, s, secret.Key("ann"))
		theirs := secret.Key("ann").secretCheck().dialect()
		theirs.Fingerprint++

		server.onOpen = func(int) error { // between the two connections
			server.mu.Lock()
			defer server.mu.Unlock()
			server.claims[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
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
		for session, claims := range server.claims {
			if claims[theirs] {
				delete(server.claims, session)
			}
		}
		server.mu.Unlock()
		time.Sleep(secretPause + pollAway)
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
		if session.asked != 1 {
			t.Errorf("%d questions for one claim", session.asked)
		}
		for range 1000 {
			if _, err := s.TryLock(background, other.Key("ann")); !errors.Is(err, ErrNotExclusive) {
				t.Fatalf("TryLock: %v, want ErrNotExclusive", err)
			}
			time.Sleep(time.Millisecond)
		}
		if n := session.asked - 1; n < 2 || n > 5 {
			t.Errorf("%d questions for a disputed claim in a second", n)
		}
	}, WithLease(time.Hour))
}

// Who does not use a secret any more does not dispute another: a claim is given
// back, and one that was refused is not asked for again by itself, also not by a new
// connection.
func TestClaimIsGivenBack(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		right, wrong := Namespace("payouts").Keyed([]byte("right")), Namespace("payouts").Keyed([]byte("wrong"))
		held := mustTry(t, s, right.Key("ann"))
		if _, err := s.TryLock(background, wrong.Key("ann")); !errors.Is(err, ErrNotExclusive) {
			t.Fatalf("TryLock: %v, want ErrNotExclusive", err)
		}
		time.Sleep(time.Hour)
		if n := len(server.claims[server.session(0)]); n != 1 {
			t.Errorf("%d claims while a key is held, want 1", n)
		}
		mustUnlock(t, held)
		time.Sleep(time.Hour)
		if n := len(server.claims[server.session(0)]); n != 0 {
			t.Errorf("%d claims an hour after the last key, want none", n)
		}
		asked := server.session(0).asked
		mustUnlock(t, mustTry(t, s, wrong.Key("ann"))) // nobody disputes it now
		server.session(0).hooks(nil, func() error { return errGone })
		_, _ = s.TryLock(background, ID(1))
		synctest.Wait()
		mustUnlock(t, mustTry(t, s, ID(1)))
		if n := len(server.claims[server.session(1)]); n != 0 || asked == 0 {
			t.Errorf("%d claims of a new connection on which no key needs one", n)
		}
	})
}

// A request for one of several keys that is granted the first leaves the others
// untested. They use the claim no longer.
func TestClaimIsGivenBackByUntestedKeys(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		payouts := Namespace("payouts").Keyed([]byte("secret"))
		lock, err := s.TryAny(background, payouts.Key("ann"), payouts.Key("bob"), payouts.Key("eve"))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lock)
		time.Sleep(time.Hour)
		if n := len(server.claims[server.session(0)]); n != 0 {
			t.Errorf("%d claims an hour after the last key, want none", n)
		}
	})
}

// Also on a connection that is never silent.
func TestClaimIsGivenBackInTraffic(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		mustUnlock(t, mustTry(t, s, Namespace("payouts").Keyed([]byte("one")).Key("ann")))
		for range 600 {
			mustUnlock(t, mustTry(t, s, ID(1)))
			time.Sleep(s.options.heartbeat / 20)
		}
		if n := len(server.claims[server.session(0)]); n != 0 {
			t.Errorf("%d claims after 30 heartbeats without a key that needs one", n)
		}
	})
}

// Many at once do not get beyond the limit, and those for which there is room are
// served.
func TestBurstsOfClaims(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := func(i int) Key { return Namespace(fmt.Sprint("tenant-", i)).Keyed([]byte("secret")).Key("ann") }
		for round := range 5 {
			var calls []<-chan called
			for i := range (round + 1) * (maxSecrets - 1) {
				calls = append(calls, begin(func() (*Lock, error) { return s.TryLock(background, key(i)) }))
			}
			granted := 0
			for _, c := range calls {
				switch r := returned(t, "TryLock", c); {
				case r.err == nil:
					granted++
					defer r.lock.Unlock()
				case !errors.Is(r.err, ErrCapacity) && !errors.Is(r.err, ErrHeld):
					t.Errorf("TryLock: %v", r.err)
				}
			}
			if n := len(server.claims[server.session(0)]); n > maxSecrets {
				t.Fatalf("round %d: %d claims on one connection, want %d at the most", round, n, maxSecrets)
			}
			if round == 0 && granted != maxSecrets-1 {
				t.Errorf("%d of %d granted, and there was room for all", granted, maxSecrets-1)
			}
		}
	})
}

// Namespaces with a secret may be many, and claims at a time are not.
func TestManyClaims(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := func(i int) Key { return Namespace(fmt.Sprint("tenant-", i)).Keyed([]byte("secret")).Key("ann") }
		for i := range 10 * maxSecrets {
			mustUnlock(t, mustTry(t, s, key(i)))
		}
		if n := len(server.claims[server.session(0)]); n > maxSecrets {
			t.Errorf("%d claims on one connection, want %d at the most", n, maxSecrets)
		}
		var locks []*Lock
		for i := range maxSecrets {
			locks = append(locks, mustTry(t, s, key(i)))
		}
		if _, err := s.TryLock(background, key(maxSecrets)); !errors.Is(err, ErrCapacity) {
			t.Errorf("TryLock beyond the limit: %v, want ErrCapacity", err)
		}
		mustUnlock(t, locks[0])
		mustUnlock(t, mustTry(t, s, key(maxSecrets)))
	})
}

// A statement beside those of locks that fails may be the news that all is lost.
func TestClaimAndTokenFindLoss(t *testing.T) {
	for name, ask := range map[string]func(s *Session, held *Lock){
		"claim": func(s *Session, _ *Lock) {
			_, _ = s.TryLock(background, Namespace("payouts").Keyed([]byte("one")).Key("ann"))
		},
		"token": func(_ *Session, held *Lock) { _, _ = held.token(background) },
	} {
		for _, lost := range []bool{true, false} {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				held := mustTry(t, s, ID(1))
				fails := func() error {
					if lost {
						server.steal(ID(1))
					}
					return &dialect.Failure{Kind: dialect.Statement, Reason: "simulated"}
				}
				session := server.session(0)
				session.mu.Lock()
				session.onClaim, session.onToken = fails, fails
				session.mu.Unlock()
				ask(s, held)
				synctest.Wait()
				if err := held.Err(); errors.Is(err, ErrLost) != lost {
					t.Errorf("%s, lost %t: Err: %v", name, lost, err)
				}
			})
		}
	}
}

// A key is not handed on to who makes it with a secret, from who has the same number
// by another name.
func TestClaimAndAlias(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := Namespace("payouts").Keyed([]byte("one")).Key("ann")
		theirs := key.secretCheck().dialect()
		theirs.Fingerprint++
		server.claims[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
		alias := mustTry(t, s, ID(key.Int64()))
		waiter := begin(func() (*Lock, error) { return s.Lock(background, key) })
		pending(t, "Lock", waiter)
		mustUnlock(t, alias)
		time.Sleep(ticks)
		pending(t, "Lock of a key whose secret is disputed", waiter)
	})
}

// Nor is it granted to who joins the question that somebody else has asked by the
// number alone.
func TestClaimAndAliasInFlight(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := Namespace("payouts").Keyed([]byte("one")).Key("ann")
		theirs := key.secretCheck().dialect()
		theirs.Fingerprint++
		server.claims[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
		gate := make(chan struct{})
		server.session(0).hooks(func() error { <-gate; return nil }, nil)
		ctx, cancel := context.WithCancel(background)
		alias := begin(func() (*Lock, error) { return s.TryLock(ctx, ID(key.Int64())) })
		pending(t, "TryLock", alias)
		waiter := begin(func() (*Lock, error) { return s.Lock(background, key) })
		pending(t, "Lock", waiter)
		cancel()
		wantErr(t, "who has given up", returned(t, "TryLock", alias), context.Canceled)
		close(gate)
		time.Sleep(ticks)
		pending(t, "Lock of a key whose secret is disputed", waiter)
		if n := server.held(); n != 0 {
			t.Errorf("%d locks in the database", n)
		}
	})
}

// Who waits for a key that is disputed learns why it was in vain.
func TestWaitForDisputedKey(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := Namespace("payouts").Keyed([]byte("one")).Key("ann")
		theirs := key.secretCheck().dialect()
		theirs.Fingerprint++
		server.claims[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		if _, err := s.Lock(ctx, key); !errors.Is(err, ErrNotExclusive) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v, want ErrNotExclusive and the end of the context", err)
		}
	})
}
