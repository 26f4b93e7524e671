package simulation

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/internal/httptesting"
	"github.com/latchkey-go/latchkey/sqllock"
)

// If a statement has no response for the lease, all locks are lost. The lease
// counts from the moment at which the last answered statement was sent.
func TestLeaseRunsOut(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		released := mustTry(t, s, sqllock.ID(1))
		c := st.conn(0)
		c.hooks(func() error { time.Sleep(300 * time.Millisecond); return nil }, nil)
		sent := time.Now() // not when it was answered
		lock := mustTry(t, s, sqllock.ID(2))
		hook, _ := hold(t)
		c.hooks(nil, hook)
		unlocked := beginUnlock(released)
		<-lock.Context().Done()
		wantErr(t, "the cause", context.Cause(lock.Context()), sqllock.ErrLost)
		if got := time.Since(sent); got != trust {
			t.Errorf("lost %v after its statement was sent, want %v", got, trust)
		}
		wantReturned(t, "Unlock", unlocked, sqllock.ErrUnavailable)
		mustUnlock(t, mustTry(t, s, sqllock.ID(3))) // on another connection, though the first is stuck
		if n := st.attempts(); n != 2 {
			t.Errorf("%d connections were opened, want 2", n)
		}
		c.connMu.Lock()
		defer c.connMu.Unlock()
		if !c.aborted {
			t.Error("the socket under the stuck statement was not closed")
		}
	})
}

// If the server does not have a lock that is given back, the connection is lost
// with all its locks.
func TestUnlockOfWhatIsNotHeld(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock, other := mustTry(t, s, sqllock.ID(1)), mustTry(t, s, sqllock.ID(2))
		st.steal(sqllock.ID(1))
		wantErr(t, "Unlock", lock.Unlock(), sqllock.ErrLost)
		synctest.Wait()
		wantErr(t, "Err of another lock of the connection", other.Err(), sqllock.ErrLost)
		if n := st.attempts(); n != 2 {
			t.Errorf("%d connections were opened, want 2", n)
		}
		mustUnlock(t, mustTry(t, s, sqllock.ID(2)))
	})
}

// After a failover to a server whose locks do not exclude, calls return
// ErrNotExclusive. Waiters wait. The Session serves again once locks exclude.
func TestReconnectsToWhatDoesNotExclude(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		st.onOpen(func(n int) error {
			if n < 5 {
				return &dialect.Failure{Kind: dialect.NotExclusive, Reason: "a standby"}
			}
			return nil
		})
		st.conn(0).hooks(nil, fail(errGone))
		_, _ = s.TryLock(background, sqllock.ID(1))
		synctest.Wait()
		wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrNotExclusive)
		waiter := beginLock(background, s, sqllock.ID(1))
		pending(t, "Lock", waiter)
		time.Sleep(ticks)
		granted(t, "the waiter", waiter)
	})
}

// Calls made while the Session reconnects wait for it, up to a second. The
// engine's own time limit for connecting is not reported as the end of the
// caller's context.
func TestCallsDuringReconnect(t *testing.T) {
	for _, tt := range []struct {
		takes, before time.Duration // until the connection is open, and until the call
		want          error
	}{
		{500 * time.Millisecond, 0, nil},
		{3 * time.Second, 0, sqllock.ErrUnavailable},
		{4 * dialect.ConnectTimeout, 2 * dialect.ConnectTimeout, sqllock.ErrUnavailable},
	} {
		scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.onOpen(func(int) error { time.Sleep(tt.takes); return nil })
			st.conn(0).hooks(nil, fail(errGone))
			_, _ = s.TryLock(background, sqllock.ID(1))
			time.Sleep(tt.before)
			asked := time.Now()
			if err := second(s.TryLock(background, sqllock.ID(2))); !errors.Is(err, tt.want) || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryLock during a reconnection of %v: %v, want %v", tt.takes, err, tt.want)
			}
			if waited := time.Since(asked); waited > responseBound {
				t.Errorf("it took %v", waited)
			}
			st.onOpen(nil)
			time.Sleep(tt.takes + ticks)
			mustTry(t, s, sqllock.ID(3))
		})
	}
}

// The log says why the Session cannot connect, once for each reason. It says
// nothing while calls still wait for the connection.
func TestWhyItCannotConnect(t *testing.T) {
	var log httptesting.Logbook
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		for i, reason := range []string{"starting", "too many clients"} {
			st.onOpen(func(int) error { return &dialect.Failure{Kind: dialect.Gone, Reason: reason} })
			if i == 0 {
				st.conn(0).hooks(nil, fail(errGone))
				wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrUnavailable)
				time.Sleep(responseBound - time.Millisecond)
				if text := log.String(); strings.Contains(text, "cannot connect") {
					t.Errorf("the log while calls wait: %s", text)
				}
			}
			time.Sleep(ticks)
			text := log.String()
			if strings.Count(text, "cannot connect") != 1+i || strings.Count(text, reason) != 1 {
				t.Errorf("the log of %d reasons: %s", 1+i, text)
			}
		}
	}, sqllock.WithLogger(log.Logger()))
}

// Callers have their full time after each loss, also if the one before was
// shortly before it.
func TestCallsAfterTwoLosses(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lose := func(n int) {
			st.conn(n).hooks(nil, fail(errGone))
			wantErr(t, "TryLock", second(s.TryLock(background, sqllock.ID(1))), sqllock.ErrUnavailable)
		}
		lose(0)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
		time.Sleep(responseBound - 100*time.Millisecond)
		hook, resume := hold(t)
		st.onOpen(func(int) error { return hook() })
		lose(1)
		call := beginTry(background, s, sqllock.ID(2))
		time.Sleep(responseBound - time.Millisecond)
		pending(t, "TryLock before its time", call)
		resume()
		granted(t, "TryLock", call)
	})
}

// A call that only tries fails 0.9 s after it came, also if a statement before it
// took some of that time. Then the connection is doubtful: other calls fail at
// once. A response ends that, and a new call has its full time.
func TestAfterAStall(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		c := st.conn(0)
		hook, resume := hold(t)
		c.hooks(hook, nil)
		stalled := beginTry(background, s, sqllock.ID(2))
		time.Sleep(responseBound / 2)
		queued := beginTry(background, s, sqllock.ID(4))
		time.Sleep(responseBound/2 - 1)
		pending(t, "TryLock before its time", stalled)
		time.Sleep(time.Nanosecond)
		wantReturned(t, "TryLock whose statement is stuck", stalled, sqllock.ErrUnavailable)
		wantReturned(t, "TryLock behind it", queued, sqllock.ErrUnavailable)
		began := time.Now()
		wantErr(t, "a later TryLock", second(s.TryLock(background, sqllock.ID(5))), sqllock.ErrUnavailable)
		if took := time.Since(began); took != 0 {
			t.Errorf("a call during the stall took %v", took)
		}
		wantErr(t, "Err of a lock during the stall", lock.Err(), nil)
		unlocked := beginUnlock(lock)
		time.Sleep(responseBound)
		wantReturned(t, "Unlock during the stall", unlocked, sqllock.ErrUnavailable)
		c.hooks(func() error { time.Sleep(50 * time.Millisecond); return nil }, nil)
		resume()
		time.Sleep(10 * time.Millisecond)
		mustUnlock(t, mustTry(t, s, sqllock.ID(3)))
	})
}

// A lock whose lease has passed is not handed on to a waiter of this process.
func TestNoHandOverOfWhatIsLost(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		waiter := beginLock(background, s, sqllock.ID(1))
		time.Sleep(100 * time.Millisecond) // the boot clock is read now and then
		hook, resume := hold(t)
		st.conn(0).hooks(hook, nil)
		st.link.asleep.Add(int64(trust))
		unlocked := beginUnlock(lock)
		pending(t, "the waiter", waiter)
		resume()
		returned(t, "Unlock", unlocked)
		time.Sleep(ticks)
		wantErr(t, "Err of the waiter's lock", granted(t, "the waiter", waiter).Err(), nil)
	})
}
