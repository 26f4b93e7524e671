package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/lockertest"
	"github.com/latchkey-go/latchkey/sqllock"
)

// secretUses are the checks that sessions use at the server.
type secretUses struct {
	mu    sync.Mutex // protects what follows
	uses  map[*conn]map[dialect.SecretCheck]bool
	asked int
	onUse func() error // called before a check takes effect
}

// A secretive is a session that checks secrets.
type secretive struct {
	*conn
	all *secretUses
}

// UseSecret implements dialect.SecretChecker.
func (s secretive) UseSecret(c dialect.SecretCheck) (conflict bool, err error) {
	if err := s.say(); err != nil {
		return false, err
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.all.asked++
	if s.all.onUse != nil {
		if err := s.all.onUse(); err != nil {
			return false, err
		}
	}
	for _, used := range s.all.uses {
		for other := range used {
			if other.Class == c.Class && other.Fingerprint != c.Fingerprint {
				return true, nil
			}
		}
	}
	if s.all.uses[s.conn] == nil {
		s.all.uses[s.conn] = make(map[dialect.SecretCheck]bool)
	}
	s.all.uses[s.conn][c] = true
	return false, nil
}

// Destroy implements dialect.Session.
func (s secretive) Destroy() {
	s.conn.Destroy()
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	delete(s.all.uses, s.conn)
}

// change calls do.
func (all *secretUses) change(do func()) {
	all.mu.Lock()
	defer all.mu.Unlock()
	do()
}

// checks returns how many checks there were.
func (all *secretUses) checks() (n int) {
	all.change(func() { n = all.asked })
	return n
}

// intrude makes another process use the secret of namespace that has this
// fingerprint. leave makes it end.
func (all *secretUses) intrude(namespace string, fingerprint uint32) (leave func()) {
	other := new(conn)
	all.change(func() {
		all.uses[other] = map[dialect.SecretCheck]bool{dialect.SecretCheckOf(namespace, fingerprint): true}
	})
	return func() { all.change(func() { delete(all.uses, other) }) }
}

// withSecrets runs test with a server that checks secrets.
func withSecrets(t *testing.T, test func(t *testing.T, s *sqllock.Session, st *stage, all *secretUses), opts ...sqllock.Option) {
	t.Helper()
	all := &secretUses{uses: make(map[*conn]map[dialect.SecretCheck]bool)}
	script{opts: opts, secrets: true, session: func(_ *stage, c *conn) dialect.Session { return secretive{c, all} }}.run(t,
		func(t *testing.T, s *sqllock.Session, st *stage) { test(t, s, st, all) })
}

// payouts are keys under a secret.
var payouts = sqllock.Namespace("payouts").Keyed([]byte("one"))

// A new connection uses no secret before it has checked it: a process with
// another secret may have come in between. When that process has gone, all
// callers are served again, waiters included.
func TestSecretAfterLoss(t *testing.T) {
	withSecrets(t, func(t *testing.T, s *sqllock.Session, st *stage, all *secretUses) {
		mustTry(t, s, payouts.Key("ann"))
		leave := func() {}
		st.onOpen(func(int) error { // between the two connections
			leave = all.intrude("payouts", 1)
			return nil
		})
		st.conn(0).hooks(nil, fail(errGone))
		_, _ = s.TryLock(background, sqllock.ID(1))
		synctest.Wait()
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
		wantErr(t, "TryLock", second(s.TryLock(background, payouts.Key("ben"))), sqllock.ErrNotExclusive)
		wantErr(t, "TryAny", second(s.TryAny(background, payouts.Key("ben"), sqllock.ID(2))), sqllock.ErrNotExclusive)
		waiter := beginLock(background, s, payouts.Key("ben"))
		either := begin(func() (sqllock.Locks, error) {
			return one(s.LockAny(background, payouts.Key("cat"), payouts.Key("dan")))
		})
		time.Sleep(ticks)
		pending(t, "Lock", waiter)
		pending(t, "LockAny", either)
		leave()
		time.Sleep(time.Second)
		granted(t, "Lock", waiter)
		granted(t, "LockAny", either)
	})
}

// A caller that waits for a key whose secret is refused learns why it waited
// without success. So it does if its context ends during the check.
func TestWaitForKeyWithRefusedSecret(t *testing.T) {
	withSecrets(t, func(t *testing.T, s *sqllock.Session, st *stage, all *secretUses) {
		all.intrude("payouts", 1)
		ctx, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		if _, err := s.Lock(ctx, payouts.Key("ann")); !errors.Is(err, sqllock.ErrNotExclusive) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Lock: %v, want ErrNotExclusive and the end of the context", err)
		}
		alias := mustTry(t, s, sqllock.ID(payouts.Key("ann").Int64())) // nor is the key handed over
		waiter := beginLock(background, s, payouts.Key("ann"))
		mustUnlock(t, alias)
		time.Sleep(ticks)
		pending(t, "Lock of a key whose secret is refused", waiter)

		hook, _ := hold(t)
		st.conn(0).hooks(hook, nil)
		beginTry(background, s, sqllock.ID(1))
		ctx, cancel = context.WithTimeout(background, responseBound/2)
		defer cancel()
		mail := sqllock.Namespace("mail").Keyed([]byte("one")).Key("ann")
		wantErr(t, "TryLock that ends during the check", second(s.TryLock(ctx, mail)), context.DeadlineExceeded)
		wantErr(t, "TryLock that has no response", second(s.TryLock(background, mail)), sqllock.ErrUnavailable)
		checking := beginTry(background, s, mail)
		wantErr(t, "Close", s.Close(), nil)
		time.Sleep(time.Second)
		wantReturned(t, "Lock, after Close", waiter, sqllock.ErrClosed)
		wantReturned(t, "TryLock during the check, after Close", checking, sqllock.ErrClosed)
		wantErr(t, "TryLock after Close", second(s.TryLock(background, mail)), sqllock.ErrClosed)
		if got := s.Stats(); got.Canceled != 1 || got.Failed != 6 {
			t.Errorf("counted %+v", got)
		}
	})
}

// Each kind of call is denied under a refused secret.
func TestEachCallChecksTheSecret(t *testing.T) {
	withSecrets(t, func(t *testing.T, s *sqllock.Session, _ *stage, all *secretUses) {
		all.intrude("payouts", 1)
		k := payouts.Key("ann")
		for name, call := range map[string]func(context.Context) error{
			"TryLock":    func(ctx context.Context) error { return second(s.TryLock(ctx, k)) },
			"Lock":       func(ctx context.Context) error { return second(s.Lock(ctx, k)) },
			"TryRLock":   func(ctx context.Context) error { return second(s.TryRLock(ctx, k)) },
			"RLock":      func(ctx context.Context) error { return second(s.RLock(ctx, k)) },
			"TryAny":     func(ctx context.Context) error { return second(s.TryAny(ctx, sqllock.ID(1), k)) },
			"LockAny":    func(ctx context.Context) error { return second(s.LockAny(ctx, sqllock.ID(1), k)) },
			"TryLockAll": func(ctx context.Context) error { return second(s.TryLockAll(ctx, sqllock.ID(1), k)) },
			"LockAll":    func(ctx context.Context) error { return second(s.LockAll(ctx, sqllock.ID(1), k)) },
			"TryEach": func(ctx context.Context) error {
				return second(lockertest.TryEach(ctx, s, [][]sqllock.Key{ids(1), {k}}))
			},
		} {
			ctx, cancel := context.WithTimeout(background, 10*time.Second+100*time.Millisecond)
			wantErr(t, name, call(ctx), sqllock.ErrNotExclusive)
			cancel()
		}
		wantErr(t, "TryLock", second(s.TryLock(background, k)), sqllock.ErrNotExclusive)
		wantErr(t, "Close", s.Close(), nil)
		wantErr(t, "TryLock right after Close", second(s.TryLock(background, k)), sqllock.ErrClosed)
	})
}

// A call for a key under a secret opens the connection of a Session that sleeps.
func TestSecretWakesASession(t *testing.T) {
	withSecrets(t, func(t *testing.T, s *sqllock.Session, st *stage, _ *secretUses) {
		time.Sleep(idleTime)
		asleep(t, s, st)
		mustUnlock(t, mustTry(t, s, payouts.Key("ann")))
		time.Sleep(2 * idleTime)
		asleep(t, s, st)
		mustUnlock(t, mustTry(t, s, payouts.Key("ann")))
	}, sqllock.WithIdleClose(idleTime))
}

// A Session uses at most a hundred secrets, each checked once.
func TestMostSecrets(t *testing.T) {
	const most = 100
	withSecrets(t, func(t *testing.T, s *sqllock.Session, _ *stage, all *secretUses) {
		key := func(i int) sqllock.Key {
			return sqllock.Namespace(fmt.Sprint("tenant-", i)).Keyed([]byte("secret")).Key("ann")
		}
		for range 2 {
			for i := range most {
				mustUnlock(t, mustTry(t, s, key(i)))
			}
		}
		if n := all.checks(); n != most {
			t.Errorf("%d checks, want %d", n, most)
		}
		wantErr(t, "TryLock beyond", second(s.TryLock(background, key(most))), sqllock.ErrCapacity)
		wantErr(t, "Lock beyond", second(s.Lock(background, key(most))), sqllock.ErrCapacity)
		mustUnlock(t, mustTry(t, s, key(0)))
	})
}

// A check that fails does not count as made: no key is requested under it. The
// Session makes it again after a pause, and keeps its locks.
func TestFailedSecretCheck(t *testing.T) {
	withSecrets(t, func(t *testing.T, s *sqllock.Session, st *stage, all *secretUses) {
		held := mustTry(t, s, sqllock.ID(1))
		all.change(func() { all.onUse = fail(failedStatement) })
		sent := len(st.conn(0).sent())
		for range 2 {
			wantErr(t, "TryLock", second(s.TryLock(background, payouts.Key("ann"))), sqllock.ErrUnavailable)
		}
		if n := len(st.conn(0).sent()) - sent; n != 0 || all.checks() != 1 {
			t.Errorf("%d batches, %d checks, want none and 1", n, all.checks())
		}
		all.change(func() { all.onUse = nil })
		time.Sleep(time.Second)
		mustUnlock(t, mustTry(t, s, payouts.Key("ann")))
		mustUnlock(t, held)
	})
}
