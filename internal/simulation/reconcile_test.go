package simulation

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/dialect"
	"github.com/latchkey-go/latchkey/sqllock"
)

// A statement that fails half-way costs no lock while the session lives. The
// engine asks the server which locks the session holds.
func TestStatementFailsHalfWay(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		c := st.conn(0)
		kept, released := mustTry(t, s, sqllock.ID(1)), mustTry(t, s, sqllock.ID(2))
		hook, resume := hold(t)
		c.hooks(hook, nil)
		blocker := beginTry(background, s, sqllock.ID(3))
		unlocked := beginUnlock(released)
		taken := beginTry(background, s, sqllock.ID(4)) // the statement takes it before it fails
		denied := beginTry(background, s, sqllock.ID(5))
		c.hooks(nil, func() error {
			c.hooks(nil, nil)
			st.giveUp(sqllock.ID(5)) // as if this one had not been taken
			return &dialect.Failure{Kind: dialect.Full, Reason: "no room"}
		})
		resume()
		wantReturned(t, "blocker", blocker, nil)
		wantReturned(t, "Unlock", unlocked, nil)
		wantReturned(t, "what was taken", taken, nil)
		wantReturned(t, "what was not", denied, sqllock.ErrCapacity)
		wantErr(t, "Err of a lock beside a failed statement", kept.Err(), nil)
		if got := s.Stats().Losses; got != 0 {
			t.Errorf("%d losses", got)
		}
		mustUnlock(t, kept)
		mustUnlock(t, mustTry(t, s, sqllock.ID(5)))
	})
}

// A slowProof takes a while to say what its session holds.
type slowProof struct {
	*conn
	takes time.Duration
}

// Held implements dialect.Session.
func (s slowProof) Held() ([]dialect.Key, error) {
	time.Sleep(s.takes)
	return s.conn.Held()
}

// The database may give up on a key again and again, after a long wait. The key
// is unavailable, and the session loses no other lock, however long it takes. The
// lease counts from the moment at which the session last asked what it holds.
func TestStatementsFailAgainAndAgain(t *testing.T) {
	const lease = 20 * time.Second
	slow := func(_ *stage, c *conn) dialect.Session { return slowProof{c, lease / 5} }
	script{session: slow, opts: []sqllock.Option{sqllock.WithLease(lease)}}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		st.conn(0).hooks(func() error {
			time.Sleep(lease / 3)
			return failedStatement
		}, nil)
		for began := time.Now(); time.Since(began) < 8*lease; time.Sleep(lease / 100) {
			_, err := s.TryLock(background, sqllock.ID(2))
			if n := s.Stats().Losses; n > 0 || !errors.Is(err, sqllock.ErrUnavailable) {
				t.Fatalf("TryLock of the key: %v, want ErrUnavailable; %d losses", err, n)
			}
		}
		st.conn(0).hooks(nil, nil)
		time.Sleep(lease)
		mustUnlock(t, mustTry(t, s, sqllock.ID(2)))
		mustUnlock(t, lock)
	})
}

// A release whose statement fails on a session that lives is sent again, until
// the database no longer holds the lock. Unlock returns after that. A session
// that never releases is lost.
func TestReleaseIsSentAgainAfterAnError(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		hook, resume := hold(t)
		failures := 0
		st.conn(0).hooks(func() error {
			if failures++; failures < 3 {
				return failedStatement
			}
			return hook()
		}, nil)
		unlocked := beginUnlock(lock)
		pending(t, "Unlock while the database holds the lock", unlocked)
		if n := st.held(); n != 1 {
			t.Fatalf("%d locks at the server, want 1", n)
		}
		resume()
		wantReturned(t, "Unlock", unlocked, nil)
		synctest.Wait()
		if st.held() != 0 || s.Stats().Losses != 0 {
			t.Errorf("%d locks are left at the server, %d losses", st.held(), s.Stats().Losses)
		}
		lock = mustTry(t, s, sqllock.ID(1))
		failures = 0
		st.conn(0).hooks(func() error { failures++; return failedStatement }, nil)
		wantErr(t, "Unlock that always fails", lock.Unlock(), sqllock.ErrLost)
		if n := s.Stats().Losses; n != 1 || failures != 10 {
			t.Errorf("%d losses after %d failures, want 1 after 10", n, failures)
		}
	})
}

// The time that a caller waits for a response includes statements that failed. A
// release that is sent again gives Unlock no more time, nor a TryLock of its key.
func TestReleaseSentAgainHasTheTimeThatIsLeft(t *testing.T) {
	scripted(t, func(t *testing.T, s *sqllock.Session, st *stage) {
		lock := mustTry(t, s, sqllock.ID(1))
		time.Sleep(2 * fairness) // it may not be handed over any more
		st.conn(0).hooks(func() error {
			time.Sleep(responseBound * 2 / 3)
			return failedStatement
		}, nil)
		unlocked := beginUnlock(lock)
		tried := beginTry(background, s, sqllock.ID(1))
		time.Sleep(responseBound)
		wantReturned(t, "TryLock", tried, sqllock.ErrUnavailable)
		wantReturned(t, "Unlock", unlocked, sqllock.ErrUnavailable)
		st.conn(0).hooks(nil, nil)
		time.Sleep(responseBound)
		mustUnlock(t, mustTry(t, s, sqllock.ID(1)))
		if n := s.Stats().Losses; n != 0 {
			t.Errorf("%d connections were lost", n)
		}
	})
}

// A terminating is a session with a server process. Its script counts the
// statements that end processes, and rejects the first ones.
type terminating struct {
	*conn
	asked *termination
}

type termination struct {
	rejects int
	with    error // how the first ones fail

	mu    sync.Mutex
	count int
	left  []dialect.Process // of the last statement
}

// Terminate implements dialect.Terminator.
func (s terminating) Terminate(left []dialect.Process) ([]dialect.Process, error) {
	s.asked.mu.Lock()
	defer s.asked.mu.Unlock()
	s.asked.left = left
	if err := s.say(); err != nil {
		return nil, err
	}
	if s.asked.count++; s.asked.count <= s.asked.rejects {
		return nil, s.asked.with
	}
	return nil, nil
}

// The server process of a lost connection is ended, even if that fails at first.
// A server where it always fails is not asked for ever, and serves: also one where
// it costs the connection each time.
func TestLeftProcessIsEndedAfterAFailure(t *testing.T) {
	const never, most = 1 << 30, 10
	for _, tt := range []struct {
		rejects, asked int
		with           error
	}{
		{0, 1, nil}, {1, 2, failedStatement}, {never, most, failedStatement}, {1, 2, errGone}, {never, most, errGone},
	} {
		asked := &termination{rejects: tt.rejects, with: tt.with}
		script{session: func(_ *stage, c *conn) dialect.Session { return terminating{c, asked} }}.run(t, func(t *testing.T, s *sqllock.Session, st *stage) {
			st.conn(0).hooks(nil, fail(errGone))
			beginTry(background, s, sqllock.ID(1)) // finds the loss
			time.Sleep(time.Hour)
			mustTry(t, s, sqllock.ID(2))
			asked.mu.Lock()
			defer asked.mu.Unlock()
			if asked.count != tt.asked {
				t.Errorf("%d statements to end a process, of which %d may be rejected; want %d", asked.count, tt.rejects, tt.asked)
			}
			if tt.rejects == 0 && (len(asked.left) != 1 || asked.left[0] != st.conn(0).Process()) {
				t.Errorf("ended %v, want that of the first connection", asked.left)
			}
		})
	}
}
