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

// tenantKey is a key in the ith of many namespaces with a secret.
func tenantKey(i int) Key {
	return Namespace(fmt.Sprint("tenant-", i)).Keyed([]byte("secret")).Key("ann")
}

// used returns how many secrets the ith session uses.
func (f *fakeServer) used(i int) int {
	session := f.session(i)
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.secrets[session])
}

// uses reports whether the ith session uses the secret of key.
func (f *fakeServer) uses(i int, key Key) bool {
	session := f.session(i)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.secrets[session][key.secretCheck().dialect()]
}

// A new connection uses no secret before it has checked it: a process with
// another secret may have come in between. When that process has gone, all
// callers are served again, waiters included.
func TestSecretAfterLoss(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		secret := Namespace("payouts").Keyed([]byte("one"))
		mustTry(t, s, secret.Key("ann"))
		theirs := secret.Key("ann").secretCheck().dialect()
		theirs.Fingerprint++

		server.onOpen = func(int) error { // between the two connections
			server.mu.Lock()
			defer server.mu.Unlock()
			server.secrets[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
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
		for session, used := range server.secrets {
			if used[theirs] {
				delete(server.secrets, session)
			}
		}
		server.mu.Unlock()
		time.Sleep(secretPause + pollAway)
		wantErr(t, "who waited", returned(t, "Lock", waiter), nil)
		wantErr(t, "who waited for either", returned(t, "LockAny", either), nil)
	})
}

// A secret is dropped at the bound only, and only if no key needs it. Keys need
// their secrets that are held, that wait for their release, or that a request in
// the queue wants. Keys that a request for one of several has left untested do
// not, nor do those that were denied.
func TestSecretIsDroppedAtTheBound(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		held := []*Lock{mustTry(t, s, tenantKey(0)), mustTry(t, s, tenantKey(1))}
		readers := mustRead(t, s, tenantKey(2))
		lock, err := s.TryAny(background, tenantKey(3), tenantKey(4), tenantKey(5))
		if err != nil {
			t.Fatal(err)
		}
		mustUnlock(t, lock)
		server.steal(tenantKey(6)) // so that it is denied
		if _, err := s.TryLock(background, tenantKey(6)); !errors.Is(err, ErrHeld) {
			t.Fatalf("TryLock of a key of another session: %v", err)
		}
		for i := 7; i < 10*maxSecrets; i++ {
			mustUnlock(t, mustTry(t, s, tenantKey(i)))
			if n := server.used(0); n != min(i+1, maxSecrets) {
				t.Fatalf("%d secrets in use after those of %d namespaces", n, i+1)
			}
		}
		for i := range 3 {
			if !server.uses(0, tenantKey(i)) {
				t.Errorf("the secret of held key %d was dropped", i)
			}
		}
		held = append(held, readers)
		for i := 3; i < maxSecrets; i++ { // the secrets of all others have given way
			held = append(held, mustTry(t, s, tenantKey(10*maxSecrets+i)))
		}
		for range 3 {
			if _, err := s.TryLock(background, tenantKey(3)); !errors.Is(err, ErrCapacity) {
				t.Fatalf("TryLock when keys need all secrets: %v, want ErrCapacity", err)
			}
		}
		mustUnlock(t, held[7])
		mustUnlock(t, mustTry(t, s, tenantKey(3)))
	}, WithMaxHeld(10*maxSecrets))
}

// A check that fails does not count as made: no key is requested under it. The
// Session makes it again after a pause, and keeps its locks.
func TestFailedSecretCheck(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		held := mustTry(t, s, ID(1))
		session := server.session(0)
		session.mu.Lock()
		session.onUse = func() error { return &failedStatement }
		session.mu.Unlock()
		sent := len(session.sent())
		for range 2 {
			if _, err := s.TryLock(background, tenantKey(1)); !errors.Is(err, ErrUnavailable) {
				t.Fatalf("TryLock: %v, want ErrUnavailable", err)
			}
		}
		if n := len(session.sent()) - sent; n != 0 || session.asked != 1 {
			t.Errorf("%d batches, %d checks, want none and 1", n, session.asked)
		}
		session.mu.Lock()
		session.onUse = nil
		session.mu.Unlock()
		time.Sleep(secretPause)
		mustUnlock(t, mustTry(t, s, tenantKey(1)))
		mustUnlock(t, held)
	})
}

// A statement that changes no lock may show, when it fails, that all locks are lost.
func TestSecretAndTokenFindLoss(t *testing.T) {
	for name, ask := range map[string]func(s *Session, held *Lock){
		"check": func(s *Session, _ *Lock) {
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
				session.onUse, session.onToken = fails, fails
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

// A key is not handed over from a caller that has its number by another name to
// one that makes it with a refused secret.
func TestSecretAndAlias(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := Namespace("payouts").Keyed([]byte("one")).Key("ann")
		theirs := key.secretCheck().dialect()
		theirs.Fingerprint++
		server.secrets[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
		alias := mustTry(t, s, ID(key.Int64()))
		waiter := begin(func() (*Lock, error) { return s.Lock(background, key) })
		pending(t, "Lock", waiter)
		mustUnlock(t, alias)
		time.Sleep(ticks)
		pending(t, "Lock of a key whose secret is refused", waiter)
	})
}

// A secret stays in use while a key is held under it, even if the number of the
// key was first acquired by another name.
func TestSecretOfAnAliasStays(t *testing.T) {
	key := tenantKey(0)
	alias := ID(key.Int64())
	for name, acquire := range map[string]func(t *testing.T, s *Session, server *fakeServer) *Lock{
		"taken over while it is released": func(t *testing.T, s *Session, server *fakeServer) *Lock {
			lock := mustTry(t, s, alias)
			hook, resume := hold(t)
			server.session(0).hooks(hook, nil)
			beginTry(background, s, ID(1)) // the release waits for the next statement
			beginUnlock(lock)
			lock = mustTry(t, s, key)
			server.session(0).hooks(nil, nil)
			resume()
			return lock
		},
		"joined as a reader": func(t *testing.T, s *Session, _ *fakeServer) *Lock {
			mustRead(t, s, alias)
			return mustRead(t, s, key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
				mustUnlock(t, mustTry(t, s, key))
				lock := acquire(t, s, server)
				for i := 1; i < 10*maxSecrets; i++ {
					mustUnlock(t, mustTry(t, s, tenantKey(i)))
				}
				if lock.Err() != nil || !server.uses(0, key) {
					t.Errorf("Err: %v, and its connection uses the secret: %t", lock.Err(), server.uses(0, key))
				}
			})
		})
	}
}

// A caller that waits for a key whose secret is refused learns why it waited
// without success.
func TestWaitForKeyWithRefusedSecret(t *testing.T) {
	simulate(t, func(t *testing.T, s *Session, server *fakeServer) {
		key := Namespace("payouts").Keyed([]byte("one")).Key("ann")
		theirs := key.secretCheck().dialect()
		theirs.Fingerprint++
		server.secrets[&fakeSession{}] = map[dialect.SecretCheck]bool{theirs: true}
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		if _, err := s.Lock(ctx, key); !errors.Is(err, ErrNotExclusive) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v, want ErrNotExclusive and the end of the context", err)
		}
	})
}
